// A file that appears under its name only when it is whole and on the disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "heddle/base/export.h"

namespace heddle::checkpoint {

// Where a new file may be put in the place of `file`: the file itself, or what a link to it names. Throws
// Error{io} when a device, a pipe or a directory stands there.
HEDDLE_API std::filesystem::path replaceable(const std::filesystem::path& file);

// Throws Error{io} naming the file and the reason.
class HEDDLE_API FileWriter {
 public:
  explicit FileWriter(std::filesystem::path file);
  ~FileWriter();  // without finish(): the temporary file is removed
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, size_t bytes);
  void finish();  // synced, closed, renamed, and the directory synced

 private:
  [[noreturn]] void fail(const std::string& doing);

  std::filesystem::path file_, temporary_;
  int descriptor_ = -1;
};

}  // namespace heddle::checkpoint
