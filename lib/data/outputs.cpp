// Checks outputs against inputs, other outputs, and existing files.
#include "lib/data/outputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <system_error>

#include "heddle/base/text.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as in Linux

[[noreturn]] void refuse_output(const Output& output, const std::string& what, const std::string& hint) {
  const bool is_usage = output.is_named() || output.where.starts_with("heddle ");
  throw Error(is_usage ? ErrorCode::usage : ErrorCode::config, output.where, what, hint);
}

std::string way_out(const Output& output) {
  if (!output.hint.empty()) return output.hint;
  return output.is_named() ? "choose a file that does not exist"
                           : "move it away, or give " + output.where + " another directory";
}

// Throws for a name that no file system accepts, before a message quotes it.
void refuse_long_name(const Output& output) {
  constexpr size_t kLongestPath = 4095, kLongestName = 255;
  const std::string whole = output.path.string();
  for (const fs::path& part : output.path)
    if (part.string().size() > kLongestName || whole.size() > kLongestPath)
      refuse_output(output,
                    "a name has at most " + std::to_string(kLongestName) + " bytes and a path " +
                        std::to_string(kLongestPath) + ", got '" + text::excerpt(whole) + "'",
                    "choose a shorter path");
}

// Returns a text that all names of a file share: device and inode, or the path of a file that does not exist.
// "" for a device, which stores nothing.
std::string identity(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return resolved(path).string();
  return S_ISCHR(status.st_mode) ? "" : std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

void refuse_inputs(std::span<const Output> outputs, std::span<const Input> inputs) {
  if (std::none_of(outputs.begin(), outputs.end(), [](const Output& output) { return output.is_named(); }))
    return;
  std::map<std::string, const Input*> files;
  for (const Input& input : inputs) files.try_emplace(identity(input.path), &input);
  files.erase("");
  for (const Output& output : outputs)
    if (const auto found = files.find(identity(output.path)); output.is_named() && found != files.end())
      refuse_output(
          output, output.path.string() + " is " + found->second->description + " itself, which would be lost",
          "choose another file");
}

// Whether two outputs must differ. Several outputs may share a directory, and checkpoint names link to one.
bool may_not_meet(const Output& a, const Output& b) {
  if (a.is_named() || b.is_named()) return true;
  const auto is = [&](Output::Form form) { return int{a.form == form} + int{b.form == form}; };
  return is(Output::Form::entry) == 0 && is(Output::Form::directory) < 2;
}

void refuse_pairs(std::span<const Output> outputs) {
  std::map<std::string, std::vector<const Output*>> files;
  for (const Output& later : outputs) {
    const std::string file = identity(later.path);
    if (file.empty()) continue;
    for (const Output* earlier : files[file]) {
      if (!may_not_meet(*earlier, later)) continue;
      const bool names_earlier = earlier->is_named() && !later.is_named();
      const Output& named = names_earlier ? *earlier : later;
      const Output& other = names_earlier ? later : *earlier;
      refuse_output(
          named,
          named.path.string() + " is used for two outputs: the " + named.kind + ", and the " + other.kind +
              " of " + other.where,
          named.form == Output::Form::directory ? "choose another directory" : "choose another file");
    }
    files[file].push_back(&later);
  }
}

void refuse_missing_parent(const Output& output, std::span<const Output> outputs) {
  const fs::path file = resolved(output.path), parent = file.parent_path();
  std::error_code missing;
  if (fs::is_directory(parent, missing)) return;
  for (const Output& other : outputs)
    if (other.form == Output::Form::directory && resolved(other.path) == parent) return;
  const bool is_file = fs::exists(parent, missing);
  refuse_output(output,
                "the directory of " + output.path.string() + (is_file ? " is a file" : " does not exist"),
                is_file ? "choose a file in a directory" : "create it first: mkdir -p " + parent.string());
}

void refuse_file_in_the_way(const Output& output) {
  std::error_code missing;
  fs::path at = resolved(output.path);
  while (!fs::exists(at, missing) && at != at.parent_path()) at = at.parent_path();
  if (fs::is_directory(at, missing)) return;
  refuse_output(output, at.string() + " exists and is not a directory",
                "choose a directory, or a path that does not exist");
}

// Whether the path is a device or an open pipe: /dev/null, /dev/stdout, a shell's >(command). Opening a FIFO
// in a directory would wait for a reader.
bool is_stream(const fs::path& path, const fs::file_status& status) {
  const std::string whole = resolved(path).string();
  return fs::is_character_file(status) ||
         (fs::is_fifo(status) && (whole.starts_with("/proc/") || whole.starts_with("/dev/")));
}

void refuse_another_kind(const Output& output) {
  std::error_code missing;
  const fs::file_status status = output.form == Output::Form::entry ? fs::symlink_status(output.path, missing)
                                                                    : fs::status(output.path, missing);
  if (!fs::exists(status)) return;
  const bool is_file = fs::is_regular_file(status);
  if (is_file && fs::file_size(output.path, missing) == 0) return;
  const bool streams = output.form == Output::Form::stream && is_stream(output.path, status);
  if (streams ||
      ((is_file || output.form == Output::Form::entry) && output.is_own && output.is_own(output.path)))
    return;
  if (fs::is_directory(status) && output.form != Output::Form::entry)
    refuse_output(output, output.path.string() + " is a directory", way_out(output));
  const bool is_irregular = !is_file && output.form != Output::Form::entry;
  refuse_output(output,
                output.path.string() + " exists and " +
                    (is_irregular ? "is not a regular file" : "contains no " + output.kind),
                way_out(output));
}

}  // namespace

fs::path resolved(const fs::path& path) {
  std::error_code failed;
  fs::path at = fs::absolute(path, failed);
  for (int i = 0; i < kMostLinks && fs::is_symlink(at, failed) && !fs::exists(at, failed); ++i)
    at = at.parent_path() / fs::read_symlink(at, failed);
  const fs::path whole = fs::weakly_canonical(at, failed);
  return failed ? at.lexically_normal() : whole.has_filename() ? whole : whole.parent_path();
}

void refuse_outputs(std::span<const Output> outputs, std::span<const Input> inputs) {
  for (const Output& output : outputs) refuse_long_name(output);
  refuse_inputs(outputs, inputs);
  refuse_pairs(outputs);
  for (const Output& output : outputs) {
    if (output.form == Output::Form::directory) {
      refuse_file_in_the_way(output);
      continue;
    }
    if (output.is_named()) refuse_missing_parent(output, outputs);
    refuse_another_kind(output);
  }
}

}  // namespace heddle
