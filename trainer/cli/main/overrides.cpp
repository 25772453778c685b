// Extracts configuration overrides from the arguments of a command line.
#include <cctype>
#include <string_view>
#include <utility>

#include "heddle/base/text.h"
#include "lib/run/recipe/section_names.h"
#include "trainer/cli/main/arguments.h"

namespace heddle::cli {
namespace {

bool is_override(std::string_view word) {
  if (word.size() < 3 || word.substr(0, 2) != "--") return false;
  const std::string_view key = word.substr(2, word.find('=') == word.npos ? word.npos : word.find('=') - 2);
  return key.find('.') != key.npos || is_section(key) || is_other_section(key);
}

// Whether the next word is the option's value and not an option; "-1" is a number.
bool is_value(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return true;
  return std::isdigit(static_cast<unsigned char>(word[1])) || word[1] == '.';
}

// Whether the word may be a section of a plugin that is not loaded yet: "--mine {width: 8}", "--mine none".
bool is_section_of_plugin(const std::vector<std::string>& words, size_t at) {
  const std::string& word = words[at];
  if (word.size() < 3 || !word.starts_with("--")) return false;
  const size_t equals = word.find('=');
  const std::string value = equals != word.npos     ? word.substr(equals + 1)
                            : at + 1 < words.size() ? words[at + 1]
                                                    : "";
  if (word.substr(0, equals).find('-', 2) != word.npos) return false;
  if (value.starts_with('{')) return true;
  const bool is_none = value == "none" || value == "None" || value == "null" || value == "~";
  const std::vector<std::string> own(kSections.begin(),
                                     // a misspelled section such as "--optimzer none" is not an option
                                     kSections.end());
  return is_none && text::nearest(word.substr(2, equals == word.npos ? word.npos : equals - 2), own).empty();
}

}  // namespace

std::vector<Override> take_overrides(std::vector<std::string>& words) {
  std::vector<Override> overrides;
  std::vector<std::string> rest;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!is_override(words[i]) && !is_section_of_plugin(words, i)) {
      rest.push_back(words[i]);
      continue;
    }
    const size_t equals = words[i].find('=');
    if (equals != std::string::npos)
      overrides.push_back({words[i].substr(2, equals - 2), words[i].substr(equals + 1)});
    else if (i + 1 < words.size() && is_value(words[i + 1])) {
      overrides.push_back({words[i].substr(2), words[i + 1]});
      ++i;
    } else
      overrides.push_back({words[i].substr(2), "true"});
  }
  words = std::move(rest);
  return overrides;
}

}  // namespace heddle::cli
