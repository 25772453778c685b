// Calls into a plugin so that whatever it throws comes out with the plugin's name.
#pragma once

#include <string>
#include <string_view>

#include "core/base/running_call.h"
#include "heddle/base/error.h"

namespace heddle {

[[noreturn]] HEDDLE_API void throw_named(const Author& author, std::string_view doing,
                                         const std::string& message,
                                         const std::string& hint = "tell the plugin's author, or fix it");

// Exceptions that keep their type. A heddle::Error has where and what; but an internal one, which is the
// engine's check of what the plugin asked for (tensors that do not fit a collective), gets the name in any
// case.
enum class Keep { nothing, errors, errors_and_what_is_no_exception };

// Inside of a catch: throws the exception again, or Error{plugin_failed} made of it.
[[noreturn]] HEDDLE_API void throw_again(const Author& author, std::string_view doing, Keep keep);

// Runs the call; what it throws, except what it keeps, becomes Error{plugin_failed} with the author's name.
// Seams keep what is no std::exception, because a forward may be left early by it (model/region.h).
template <class Call>
auto attributed(const Author& author, std::string_view doing, Call&& call, Keep keep = Keep::errors) {
  const RunningCall::Scope scope(author.name, doing);
  try {
    return call();
  } catch (...) {
    throw_again(author, doing, keep);
  }
}

}  // namespace heddle
