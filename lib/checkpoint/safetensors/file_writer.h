// A file that appears under its name only when it is complete and on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "heddle/base/export.h"

namespace heddle::checkpoint {

// The path at which a new file replaces `file`: the file itself, or the target of a link. Throws Error{io}
// for a device, a pipe or a directory.
HEDDLE_API std::filesystem::path replaceable(const std::filesystem::path& file);

// Throws Error{io} with the file, the failed operation, and the reason from errno.
[[noreturn]] void fail_on(const std::filesystem::path& file, const std::string& doing);

// Makes a file or a directory survive a power cut; true also on a file system without sync. False on failure,
// with errno.
bool bring_to_disk(const std::filesystem::path& path);

// Throws Error{io} naming the file and the reason.
class HEDDLE_API FileWriter {
 public:
  explicit FileWriter(std::filesystem::path file);
  ~FileWriter();  // without finish(): the temporary file is removed
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Allocates the space of a file of this size, so that a full disk is found before the first byte is
  // written, if the file system supports it.
  void reserve(uint64_t bytes);
  // Starts writeback of what was written so far.
  void write(const void* data, size_t bytes);
  void finish();  // synced, closed, renamed, and the directory synced

 private:
  void start_writing_back();

  std::filesystem::path file_, temporary_;
  int descriptor_ = -1;
  uint64_t written_ = 0, started_ = 0;  // bytes passed to writeback
};

}  // namespace heddle::checkpoint
