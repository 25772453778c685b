// Writing at places of a file.
#include "lib/checkpoint/safetensors/placed_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lib/checkpoint/safetensors/file_writer.h"

namespace heddle::checkpoint {

void lay_out(const std::filesystem::path& file, std::string_view first, uint64_t size) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) fail_on(file, "cannot be created");
  const bool sized = ::ftruncate(descriptor, static_cast<off_t>(size)) == 0;
  const int reason = errno;
  ::close(descriptor);
  errno = reason;
  if (!sized) fail_on(file, "cannot be created");
  PlacedFile(file).write(first, 0);
}

PlacedFile::PlacedFile(std::filesystem::path file) : file_(std::move(file)) {
  descriptor_ = ::open(file_.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail_on(file_, "cannot be opened");
}

PlacedFile::~PlacedFile() {
  ::close(descriptor_);
}

void PlacedFile::write(std::string_view bytes, uint64_t at) {
  while (!bytes.empty()) {
    const size_t some = std::min(bytes.size(), size_t{1} << 30);
    const ssize_t wrote = ::pwrite(descriptor_, bytes.data(), some, static_cast<off_t>(at));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail_on(file_, "cannot be written");
    bytes.remove_prefix(static_cast<size_t>(wrote));
    at += static_cast<uint64_t>(wrote);
  }
}

void PlacedFile::sync() {
  if (::fsync(descriptor_) != 0) fail_on(file_, "cannot be written");
}

}  // namespace heddle::checkpoint
