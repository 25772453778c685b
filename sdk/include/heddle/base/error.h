// The one error type of heddle: what happened, where, and what to do about it; and several of them at once.
#pragma once

#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

enum class ErrorCode {
  usage,            // the command line is wrong
  config,           // a YAML file or an override is wrong
  input,            // a model, data or schedule file is wrong
  not_built,        // a field is valid, but its feature is not built yet
  mesh,             // the sizes do not fit the world, or an axis is unknown
  plugin_missing,   // no plugin of that name
  plugin_abi,       // a plugin built for another engine
  plugin_conflict,  // two plugins of one name
  plugin_failed,    // a plugin threw or broke a rule of plugins
  rank_lost,        // another rank died
  timeout,          // a collective did not end in time
  io,               // writing failed: full disk, permission
  internal,         // a fault of heddle itself
  diverged          // training produced non-finite numbers
};

HEDDLE_API std::string_view name_of(ErrorCode code);

// 2 when the request is wrong, 1 when the run failed.
HEDDLE_API int exit_status(ErrorCode code);

// The plugin that a failure is attributed to. An empty name: the engine or the host's program.
struct Author {
  std::string name, version;
  std::filesystem::path file;
};

class HEDDLE_API Error : public std::exception {
 public:
  // where: "run.yaml:14 distributed.prefetch", the path of a file, or a module such as "mesh".
  // message: the value given and what was expected. hint: the next action, or empty.
  Error(ErrorCode code, std::string where, std::string message, std::string hint = "");
  ~Error() override;  // out of line: one vtable for all plugins

  ErrorCode code() const { return code_; }
  const std::string& where() const { return where_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }

  // The text for a person: "error[config] WHERE: WHAT" and "  hint: ..." on a second line.
  const char* what() const noexcept override { return block_.c_str(); }

  // The same as one line of JSON: {"error": {"code": ..., "where": ..., "what": ..., "hint": ...}}.
  std::string json() const;

 private:
  ErrorCode code_;
  std::string where_, message_, hint_, block_;
};

// Error{memory} where `thrown` is a failed allocation: the size asked for, what this process holds and may
// have, what the machine has. Empty for anything else. Recognises std::bad_alloc, and LibTorch's allocators
// by their messages, which it replaces because they contain stack traces.
HEDDLE_API std::optional<Error> out_of_memory(const std::exception& thrown);

// At least two errors. As an Error it is the first of them; what() has the blocks of all.
class HEDDLE_API ErrorList : public Error {
 public:
  explicit ErrorList(std::vector<Error> all);
  ~ErrorList() override;

  const std::vector<Error>& all() const { return all_; }
  const char* what() const noexcept override { return blocks_.c_str(); }

 private:
  std::vector<Error> all_;
  std::string blocks_;
};

// {"error": {...}}, the first; of an ErrorList all of them too: {"error": {...}, "errors": [{...}, ...]}.
HEDDLE_API std::string to_json(const Error& error);

// Collects the errors of checks that do not need each other.
class HEDDLE_API Errors {
 public:
  // Whether the work ended without an Error; one that is thrown is kept. Other exceptions pass.
  template <class Work>
  bool attempt(const Work& work) {
    try {
      work();
      return true;
    } catch (const Error& error) {
      add(error);
      return false;
    }
  }

  void add(const Error& error);  // of an ErrorList each; one that is there already is left out
  bool empty() const { return all_.empty(); }

  // Throws what was kept, if anything, in the order of the lines of the first file that is named with a line:
  // a single error as it is, several as an ErrorList of at most 20. Errors without a line come last, in the
  // order in which they were found.
  void raise() const;

 private:
  std::vector<Error> all_;
};

}  // namespace heddle
