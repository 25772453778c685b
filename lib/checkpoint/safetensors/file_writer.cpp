// Writing to a temporary name, fsync, then rename: a reader never sees a partial file.
#include "lib/checkpoint/safetensors/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "heddle/base/error.h"

namespace heddle::checkpoint {
namespace {

constexpr uint64_t kWriteBack = uint64_t{32} << 20;

}  // namespace

std::filesystem::path replaceable(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return file;
  if (!std::filesystem::is_regular_file(file, ignored))
    throw Error(ErrorCode::io, file.string(), "is there and is not a regular file, so it is not replaced",
                "name a file that may be written anew");
  return std::filesystem::canonical(file, ignored);
}

void fail_on(const std::filesystem::path& file, const std::string& doing) {
  const int reason = errno;
  const bool full = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
  throw Error(ErrorCode::io, file.string(), doing + ": " + std::strerror(reason),
              full ? "make room on the disk, or write to another directory; the previous file is untouched"
                   : "check that the directory exists and that it may be written to");
}

bool bring_to_disk(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool synced = ::fsync(descriptor) == 0 || errno == EINVAL;  // there is nothing to sync
  const int reason = errno;
  ::close(descriptor);
  errno = reason;
  return synced;
}

FileWriter::FileWriter(std::filesystem::path file)
    : file_(replaceable(file)), temporary_(file_.string() + ".tmp." + std::to_string(::getpid())) {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail_on(file_, "cannot be created");
}

FileWriter::~FileWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void FileWriter::reserve(uint64_t bytes) {
  if (bytes == 0) return;
  int failed = 0;
  do {
    failed = ::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes));
  } while (failed != 0 && errno == EINTR);
  if (failed != 0 && errno != EOPNOTSUPP && errno != ENOSYS) fail_on(file_, "cannot be written");
}

void FileWriter::write(const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t wrote = ::write(descriptor_, at, std::min(bytes, size_t{1} << 30));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail_on(file_, "cannot be written");
    at += wrote;
    bytes -= static_cast<size_t>(wrote);
    written_ += static_cast<uint64_t>(wrote);
  }
  start_writing_back();
}

// Otherwise the disk would be idle until finish(). Errors are reported by fsync.
void FileWriter::start_writing_back() {
  if (written_ - started_ < kWriteBack) return;
  ::sync_file_range(descriptor_, static_cast<off_t>(started_), static_cast<off_t>(written_ - started_),
                    SYNC_FILE_RANGE_WRITE);
  started_ = written_;
}

void FileWriter::finish() {
  if (::fsync(descriptor_) != 0) fail_on(file_, "cannot be written");
  const int closing = std::exchange(descriptor_, -1);
  if (::close(closing) != 0 || std::rename(temporary_.c_str(), file_.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    errno = reason;
    fail_on(file_, "cannot be written");
  }
  const std::filesystem::path folder = file_.has_parent_path() ? file_.parent_path() : ".";
  // A directory with write but without read permission cannot be opened.
  if (!bring_to_disk(folder) && errno != EACCES) fail_on(file_, "cannot be written");
}

}  // namespace heddle::checkpoint
