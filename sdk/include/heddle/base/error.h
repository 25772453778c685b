// Error, the exception type of heddle, with a place, a message and a hint. ErrorList and Errors combine
// several.
#pragma once

#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

// The kind of an error.
enum class ErrorCode {
  usage,            // the command line is wrong
  config,           // a YAML file or an override is wrong
  input,            // a model, data or schedule file is wrong
  not_built,        // the field is valid, but its feature is not built yet
  mesh,             // the sizes do not fit the world size, or an axis is unknown
  plugin_missing,   // no plugin has this name
  plugin_abi,       // the plugin was built for another engine
  plugin_conflict,  // two plugins have the same name
  plugin_failed,    // a plugin threw or broke a rule of the plugin interface
  rank_lost,        // another rank exited or was killed
  timeout,          // a collective did not end in time
  io,               // writing failed: disk full, permission denied
  internal,         // a bug in heddle
  diverged          // the loss or the gradient norm is NaN or Inf
};

HEDDLE_API std::string_view name_of(ErrorCode code);
// Returns the word for messages, such as "config".

// Returns the exit status of a process with this error: 2 when the request is wrong, 1 when the run failed.
HEDDLE_API int exit_status(ErrorCode code);

// The plugin that a failure is attributed to. An empty name stands for the engine or the host's program.
struct Author {
  std::string name, version;
  std::filesystem::path file;
};

// The exception that all functions of heddle throw.
class HEDDLE_API Error : public std::exception {
 public:
  // where: "run.yaml:14 distributed.prefetch", the path of a file, or a module such as "mesh". message: the
  // value given and the values allowed. hint: the next action, or empty.
  Error(ErrorCode code, std::string where, std::string message, std::string hint = "");
  ~Error() override;  // not inline, so that all plugins share one vtable

  ErrorCode code() const { return code_; }
  const std::string& where() const { return where_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }

  // The text for a person: "error[config] WHERE: MESSAGE", and "  hint: ..." on a second line.
  const char* what() const noexcept override { return block_.c_str(); }

  // Returns the error as one line of JSON: {"error": {"code": ..., "where": ..., "what": ..., "hint": ...}}.
  std::string json() const;

 private:
  ErrorCode code_;
  std::string where_, message_, hint_, block_;
};

// Converts a failed allocation to Error{internal} at "memory" or "device", which states the requested size,
// the memory that this process uses, its limit, and the machine's memory. Returns empty for any other
// exception. Recognizes std::bad_alloc and the exceptions of LibTorch's allocators, whose messages it
// replaces because they contain stack traces.
HEDDLE_API std::optional<Error> out_of_memory(const std::exception& thrown);

// At least two errors. The members of Error describe the first error. what() has the texts of all errors.
class HEDDLE_API ErrorList : public Error {
 public:
  explicit ErrorList(std::vector<Error> errors);
  ~ErrorList() override;

  const std::vector<Error>& all() const { return all_; }
  const char* what() const noexcept override { return blocks_.c_str(); }

 private:
  std::vector<Error> all_;
  std::string blocks_;
};

// Returns {"error": {...}}. For an ErrorList, "error" is the first error, and "errors": [{...}, ...] has all.
HEDDLE_API std::string to_json(const Error& error);

// Collects the errors of independent checks.
class HEDDLE_API Errors {
 public:
  // Runs the work and returns true if it throws no Error. Keeps a thrown Error and passes on other
  // exceptions.
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

  void add(const Error& error);  // adds each error of an ErrorList; skips duplicates
  bool empty() const { return all_.empty(); }

  // Throws the collected errors, if any: a single error unchanged, several errors as an ErrorList of at most
  // 20. Errors are sorted by line of the first file that an error names with a line. Errors without a line
  // come last, in the order in which they were added.
  void raise() const;

 private:
  std::vector<Error> all_;
};

}  // namespace heddle
