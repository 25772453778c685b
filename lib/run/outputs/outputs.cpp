// Comparing outputs with inputs, with each other and with what is there.
#include "lib/run/outputs/outputs.h"

#include <fstream>
#include <system_error>

#include "heddle/base/text.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as Linux follows

[[noreturn]] void refuse_output(const Output& output, const std::string& what, const std::string& hint) {
  const bool is_usage = output.is_named() || output.where.starts_with("heddle ");
  throw Error(is_usage ? ErrorCode::usage : ErrorCode::config, output.where, what, hint);
}

std::string way_out(const Output& output) {
  if (!output.hint.empty()) return output.hint;
  return output.is_named() ? "name a file that is not there"
                           : "move it away, or give " + output.where + " another directory";
}

// What no file system takes, before a message quotes it.
void refuse_long_name(const Output& output) {
  constexpr size_t kLongestPath = 4095, kLongestName = 255;
  const std::string whole = output.path.string();
  for (const fs::path& part : output.path)
    if (part.string().size() > kLongestName || whole.size() > kLongestPath)
      refuse_output(output,
                    "a name has at most " + std::to_string(kLongestName) + " bytes and a path " +
                        std::to_string(kLongestPath) + ", got '" + text::excerpt(whole) + "'",
                    "give a shorter one");
}

// Both names of a device are no loss: nothing is kept there.
bool is_one_file(const fs::path& a, const fs::path& b) {
  std::error_code missing;
  if (fs::is_character_file(a, missing)) return false;
  if (fs::exists(a, missing) && fs::exists(b, missing)) return fs::equivalent(a, b, missing);
  return resolved(a) == resolved(b);
}

void refuse_inputs(const Output& output, std::span<const Input> inputs) {
  for (const Input& input : inputs)
    if (is_one_file(output.path, input.path))
      refuse_output(output, output.path.string() + " is " + input.what + " itself, which would be lost",
                    "name another file");
}

// Several outputs may share a directory, and names of checkpoints lead to one.
bool may_not_meet(const Output& a, const Output& b) {
  if (a.is_named() || b.is_named()) return true;
  const auto is = [&](Output::Form form) { return int{a.form == form} + int{b.form == form}; };
  return is(Output::Form::entry) == 0 && is(Output::Form::directory) < 2;
}

void refuse_pairs(std::span<const Output> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i)
    for (size_t j = i + 1; j < outputs.size(); ++j) {
      if (!may_not_meet(outputs[i], outputs[j]) || !is_one_file(outputs[i].path, outputs[j].path)) continue;
      const bool earlier = outputs[i].is_named() && !outputs[j].is_named();
      const Output& named = earlier ? outputs[i] : outputs[j];
      const Output& other = earlier ? outputs[j] : outputs[i];
      refuse_output(named,
                    named.path.string() + " would be two things: the " + named.kind + ", and the " +
                        other.kind + " of " + other.where,
                    named.form == Output::Form::directory ? "name another directory" : "name another file");
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
                "the directory of " + output.path.string() + (is_file ? " is a file" : " is not there"),
                is_file ? "name a file in a directory" : "make it first: mkdir -p " + parent.string());
}

void refuse_file_in_the_way(const Output& output) {
  std::error_code missing;
  fs::path at = resolved(output.path);
  while (!fs::exists(at, missing) && at != at.parent_path()) at = at.parent_path();
  if (fs::is_directory(at, missing)) return;
  refuse_output(output, at.string() + " is there and is not a directory",
                "name a directory, or one that is not there yet");
}

// A device, or a pipe that is open already: /dev/null, /dev/stdout, a shell's >(command). A FIFO in a
// directory may have no reader, and would be waited for.
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
                output.path.string() + " is there and " +
                    (is_irregular ? "is not a regular file" : "holds no " + output.kind),
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
  for (const Output& output : outputs)
    if (output.is_named()) refuse_inputs(output, inputs);
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
