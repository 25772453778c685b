// A read-only memory-mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace heddle {

// Throws Error{input} if the file cannot be opened. An empty file has no bytes.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  std::span<const std::byte> bytes() const { return bytes_; }
  int64_t modified() const { return modified_; }  // nanoseconds since 1970

 private:
  std::span<const std::byte> bytes_;
  int64_t modified_ = 0;
};

}  // namespace heddle
