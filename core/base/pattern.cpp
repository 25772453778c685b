// The one source that includes <regex>.
#include "core/base/pattern.h"

#include <regex>

#include "heddle/base/error.h"

namespace heddle::text {

struct Pattern::Compiled {
  std::regex regex;
};

Pattern::Pattern(const std::string& expression, const std::string& where) {
  try {
    compiled_ = std::make_shared<const Compiled>(std::regex(expression));
  } catch (const std::regex_error& fault) {
    throw Error(ErrorCode::config, where,
                "not a regular expression: '" + expression + "' (" + fault.what() + ")");
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
