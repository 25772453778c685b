// Calls into a plugin so that whatever it throws comes out with the plugin's name.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <filesystem>
#include <string>

#include "core/plugin/running_call.h"
#include "heddle/base/error.h"

namespace heddle::plugin {

struct Author {
  std::string name, version;
  std::filesystem::path file;
};

[[noreturn]] inline void throw_named(const Author& author, const std::string& doing, const std::string& what,
                                     const std::string& hint = "tell the plugin's author, or fix it") {
  throw Error(ErrorCode::plugin_failed, author.file.string(),
              "the plugin '" + author.name + "' " + author.version + " threw while it " + doing + ": " + what,
              hint);
}

// Runs the call; what it throws becomes Error{plugin_failed}.
template <class Call>
auto guarded(const Author& author, const std::string& doing, Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    const std::string place = error.where().empty() ? "" : error.where() + ": ";
    if (error.hint().empty()) throw_named(author, doing, place + error.message());
    throw_named(author, doing, place + error.message(), error.hint());
  } catch (const c10::Error& error) {
    throw_named(author, doing, error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw_named(author, doing, error.what());
  } catch (...) {
    throw_named(author, doing, "something that is not a std::exception");
  }
}

// The same, but a heddle::Error is passed on as it is, because it has where and what; but for an internal
// one, which is the engine's check of what the plugin asked for: tensors that do not fit a collective.
template <class Call>
auto guarded_but_errors(const Author& author, const std::string& doing, Call&& call) {
  const RunningCall::Scope scope(author.name, doing);
  try {
    return call();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::internal) throw;
    throw_named(author, doing, error.message(), error.hint());
  } catch (const c10::Error& error) {
    throw_named(author, doing, error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw_named(author, doing, error.what());
  } catch (...) {
    throw_named(author, doing, "something that is not a std::exception");
  }
}

// The same inside a forward, which may be left early by what is no std::exception (model/region.h).
template <class Call>
auto guarded_seam(const Author& author, const std::string& doing, Call&& call) {
  const RunningCall::Scope scope(author.name, doing);
  try {
    return call();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::internal) throw;
    throw_named(author, doing, error.message(), error.hint());
  } catch (const c10::Error& error) {
    throw_named(author, doing, error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw_named(author, doing, error.what());
  }
}

}  // namespace heddle::plugin
