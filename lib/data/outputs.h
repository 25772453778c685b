// Checks the outputs of a command before it starts.
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
    stream,     // a file written in place; a device or an open pipe is allowed
    file,       // a regular file
    entry,      // anything that is_own() recognizes: a link, a directory
    directory,  // created if missing
  };
  std::filesystem::path path;
  std::string where;  // option or field that names it: "--trace", "checkpoint.checkpoint_dir"
  std::string kind;   // kind of contents, for messages: "metrics", "loss curve"
  // Whether the existing entry is of this kind, written by heddle. An empty regular file always is.
  std::function<bool(const std::filesystem::path&)> is_own;
  Form form = Form::stream;
  std::string hint = "";  // hint if the path is taken; empty: a general hint

  // Whether a command-line option names the output; an override of a field may name a directory.
  bool is_named() const { return form != Form::directory && where.starts_with("--"); }
};

// A file that a command reads.
struct Input {
  std::filesystem::path path;
  std::string description;  // "the configuration"
};

// Resolves links and throws Error{usage} (an option, a command) or Error{config} (a field) in these cases. An
// output of an option is an input or another output, or its directory is missing and not an output. A
// directory cannot be created because a file has its name. An output exists with other contents than its
// kind. Outputs of options are checked first.
void refuse_outputs(std::span<const Output> outputs, std::span<const Input> inputs);

// Resolves the links of a path, whose last component may not exist.
std::filesystem::path resolved(const std::filesystem::path& path);

}  // namespace heddle
