// The error block, its JSON form and the exit status of each code.
#include "heddle/base/error.h"

#include <utility>

#include "heddle/base/text.h"

namespace heddle {

std::string_view name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage:
      return "usage";
    case ErrorCode::config:
      return "config";
    case ErrorCode::input:
      return "input";
    case ErrorCode::not_built:
      return "not_built";
    case ErrorCode::mesh:
      return "mesh";
    case ErrorCode::plugin_missing:
      return "plugin_missing";
    case ErrorCode::plugin_abi:
      return "plugin_abi";
    case ErrorCode::plugin_conflict:
      return "plugin_conflict";
    case ErrorCode::plugin_failed:
      return "plugin_failed";
    case ErrorCode::rank_lost:
      return "rank_lost";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::io:
      return "io";
    case ErrorCode::internal:
      return "internal";
    case ErrorCode::diverged:
      return "diverged";
  }
  return "internal";
}

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::rank_lost:
    case ErrorCode::timeout:
    case ErrorCode::io:
    case ErrorCode::internal:
    case ErrorCode::diverged:
      return 1;
    default:
      return 2;
  }
}

namespace {

// Longer than any path: a value that was taken for one. Messages may be lists.
constexpr size_t kLongestWhere = 4096, kLongestMessage = 1 << 16;

}  // namespace

Error::Error(ErrorCode code, std::string where, std::string message, std::string hint)
    : code_(code), where_(std::move(where)), message_(std::move(message)), hint_(std::move(hint)) {
  if (where_.size() > kLongestWhere) where_ = text::excerpt(where_);
  for (std::string* long_text : {&message_, &hint_})
    if (long_text->size() > kLongestMessage) *long_text = text::excerpt(*long_text, kLongestMessage);
  block_ = "error[" + std::string(name_of(code_)) + "] " + where_ + ": " + message_;
  if (!hint_.empty()) block_ += "\n  hint: " + hint_;
}

Error::~Error() = default;

std::string Error::json() const {
  return "{\"error\": {\"code\": " + text::quoted(name_of(code_)) + ", \"where\": " + text::quoted(where_) +
         ", \"what\": " + text::quoted(message_) + ", \"hint\": " + text::quoted(hint_) + "}}";
}

}  // namespace heddle
