// A read-only memory-mapped file.
#include "lib/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/regular_file.h"
#include "heddle/base/error.h"

namespace heddle {
namespace {

Error cannot(const std::filesystem::path& file, const char* what) {
  return Error(ErrorCode::input, file.string(),
               std::string("cannot be ") + what + ": " + std::strerror(errno));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& file) {
  refuse_irregular(file, ErrorCode::input);
  const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw cannot(file, "opened");
  struct stat status {};
  if (fstat(descriptor, &status) != 0) {
    const Error error = cannot(file, "read");
    close(descriptor);
    throw error;
  }
  modified_ = static_cast<int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec;
  const size_t size = static_cast<size_t>(status.st_size);
  void* address = size == 0 ? nullptr : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int mapping_error = errno;
  close(descriptor);
  errno = mapping_error;
  if (address == MAP_FAILED) throw cannot(file, "mapped");
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), modified_(other.modified_) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace heddle
