// The one source that includes <regex>.
#include "core/base/pattern.h"

#include <regex>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::text {

struct Pattern::Compiled {
  std::regex regex;
};

Pattern::Pattern(const std::string& expression, const std::string& where) {
  constexpr size_t kMost = 4096;  // std::regex recurses for each character, and ends the process
  if (expression.size() > kMost)
    throw Error(ErrorCode::config, where,
                "a regular expression has at most " + std::to_string(kMost) + " characters, got '" +
                    excerpt(expression) + "'");
  try {
    compiled_ = std::make_shared<const Compiled>(Compiled{std::regex(expression)});
  } catch (const std::regex_error& fault) {
    throw Error(ErrorCode::config, where,
                "not a regular expression: '" + excerpt(expression) + "' (" + fault.what() + ")");
  }
}

bool Pattern::found_in(const std::string& text) const {
  return std::regex_search(text, compiled_->regex);
}

std::vector<std::string> Pattern::match(const std::string& text) const {
  std::smatch groups;
  if (!std::regex_match(text, groups, compiled_->regex)) return {};
  return {groups.begin(), groups.end()};
}

}  // namespace heddle::text
