// A file that appears under its name only when it is whole and on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "heddle/base/export.h"

namespace heddle::checkpoint {

// Where a new file may be put in the place of `file`: the file itself, or what a link to it names. Throws
// Error{io} when a device, a pipe or a directory stands there.
HEDDLE_API std::filesystem::path replaceable(const std::filesystem::path& file);

// Throws Error{io} naming the file, what cannot be done with it, and the reason, which errno holds.
[[noreturn]] void fail_on(const std::filesystem::path& file, const std::string& doing);

// A file or a directory as it is now outlasts a power cut; also where its file system has nothing to sync.
// False where it does not; errno says why.
bool bring_to_disk(const std::filesystem::path& path);

// Throws Error{io} naming the file and the reason.
class HEDDLE_API FileWriter {
 public:
  explicit FileWriter(std::filesystem::path file);
  ~FileWriter();  // without finish(): the temporary file is removed
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Takes the room of a file of so many bytes, so that a full disk is found before the first of them is
  // written. Where the file system cannot, it is found on the way.
  void reserve(uint64_t bytes);
  // The disk begins with what was written while the rest is.
  void write(const void* data, size_t bytes);
  void finish();  // synced, closed, renamed, and the directory synced

 private:
  void start_writing_back();

  std::filesystem::path file_, temporary_;
  int descriptor_ = -1;
  uint64_t written_ = 0, started_ = 0;  // bytes; that the disk was given
};

}  // namespace heddle::checkpoint
