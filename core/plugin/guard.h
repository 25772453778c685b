// Calls into a plugin so that whatever it throws comes out with the plugin's name.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/plugin/running_call.h"

namespace heddle::plugin {

struct Author {
  std::string name, version;
  std::filesystem::path file;
};

[[noreturn]] void throw_named(const Author& author, std::string_view doing, const std::string& what,
                              const std::string& hint = "tell the plugin's author, or fix it");

// The exceptions that keep their type. A heddle::Error has where and what; but an internal one, which is the
// engine's check of what the plugin asked for (tensors that do not fit a collective), gets the name in any
// case.
enum class Keep { nothing, errors, errors_and_what_is_no_exception };

// Inside of a catch: throws the exception again, or Error{plugin_failed} made of it.
[[noreturn]] void throw_again(const Author& author, std::string_view doing, Keep keep);

// Runs the call; what it throws becomes Error{plugin_failed}.
template <class Call>
auto guarded(const Author& author, std::string_view doing, Call&& call) {
  try {
    return call();
  } catch (...) {
    throw_again(author, doing, Keep::nothing);
  }
}

// Calls as guarded() does, but passes on a heddle::Error unchanged.
template <class Call>
auto guarded_but_errors(const Author& author, std::string_view doing, Call&& call, Keep keep = Keep::errors) {
  const RunningCall::Scope scope(author.name, doing);
  try {
    return call();
  } catch (...) {
    throw_again(author, doing, keep);
  }
}

// Calls inside a forward, which may be left early by an object that is no std::exception (model/region.h).
template <class Call>
auto guarded_seam(const Author& author, std::string_view doing, Call&& call) {
  return guarded_but_errors(author, doing, call, Keep::errors_and_what_is_no_exception);
}

}  // namespace heddle::plugin
