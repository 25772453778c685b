// Conversion of AutoModel's patterns to regular expressions.
#include "matcher.h"

#include <algorithm>
#include <utility>

#include "heddle/base/text.h"

namespace heddle::lora {
namespace {

std::string expression_of(const std::string& pattern) {
  std::string wild;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '*' && (i == 0 || pattern[i - 1] != '.')) wild += '.';
    wild += pattern[i];
  }
  std::string out;
  for (size_t i = 0; i < wild.size(); ++i) {
    const bool any = wild.compare(i, 2, ".*") == 0;
    out += any ? "(.*)" : std::string(1, wild[i]);
    if (any) ++i;
  }
  return out;
}

std::regex compiled(const std::string& pattern, const std::string& where) try {
  return std::regex(expression_of(pattern));
} catch (const std::regex_error&) {
  throw Error(
      ErrorCode::config, where, "'" + text::excerpt(pattern) + "' is not a pattern of module paths",
      "write a regular expression of the whole path, in which `*` matches any characters, such as '*_proj'");
}
std::vector<Pattern> patterns_of(const Patterns& given, const std::string& where) {
  std::vector<Pattern> out;
  for (const std::string& word : given.words) out.emplace_back(word, where);
  return out;
}

}  // namespace

Pattern::Pattern(std::string text, const std::string& where)
    : text_(std::move(text)), regex_(compiled(text_, where)) {}

Matcher::Matcher(const Config& config, const std::string& where)
    : all_linear_(config.match_all_linear),
      is_default_(!all_linear_ && config.target_modules.empty() && config.exclude_modules.empty()),
      targets_(patterns_of(is_default_ ? Patterns{{"*_proj"}} : config.target_modules, where)),
      excluded_(patterns_of(config.exclude_modules, where)) {}

bool Matcher::takes_linear(const std::function<bool(const Pattern&)>& matches) const {
  if (all_linear_) return true;
  return targets_.empty() ? std::none_of(excluded_.begin(), excluded_.end(), matches)
                          : std::any_of(targets_.begin(), targets_.end(), matches);
}

bool Matcher::takes_experts(const std::string& path) const {
  return std::any_of(targets_.begin(), targets_.end(),
                     [&](const Pattern& pattern) { return pattern.matches(path); });
}

}  // namespace heddle::lora
