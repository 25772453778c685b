// What a command is going to write, checked before it begins.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "heddle/base/error.h"
#include "heddle/base/export.h"

namespace heddle {

// A file or a directory that a command will write.
struct Output {
  enum class Form {
    stream,     // a file that is written in place: a device or an open pipe is written to as it is
    file,       // a regular file
    entry,      // whatever is_own() knows: a link, a directory
    directory,  // made where it is missing
  };
  std::filesystem::path path;
  std::string where;  // the option or the field that names it: "--trace", "checkpoint.checkpoint_dir"
  std::string kind;   // what it will hold, for messages: "metrics", "loss curve"
  // Whether what is at the path is of this kind, written by heddle. An empty regular file always is.
  std::function<bool(const std::filesystem::path&)> is_own;
  Form form = Form::stream;
  std::string hint = "";  // where something else is there; empty: a general one

  // By an option of the command line; an override of a field may name a directory.
  bool is_named() const { return form != Form::directory && where.starts_with("--"); }
};

// A file that a command reads.
struct Input {
  std::filesystem::path path;
  std::string what;  // "the configuration"
};

// Throws Error{usage} (an option, a command) or Error{config} (a field), links resolved, where an output that
// an option names is an input or another output, or its directory is missing and no output; where a directory
// cannot be made because a file has its name; and where an output is there and holds something else than its
// kind. Outputs named by options come first.
void refuse_outputs(std::span<const Output> outputs, std::span<const Input> inputs);

// Where a path leads, with links resolved; the last part need not be there.
std::filesystem::path resolved(const std::filesystem::path& path);

}  // namespace heddle
