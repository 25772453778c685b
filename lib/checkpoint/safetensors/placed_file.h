// A file of known size that several processes fill, each its own bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace heddle::checkpoint {

// Creates the file with this size and these first bytes; the rest is zero. Throws Error{io}.
void lay_out(const std::filesystem::path& file, std::string_view first, uint64_t size);

// Opens an existing file for writing. Throws Error{io} naming the file and the reason.
class PlacedFile {
 public:
  explicit PlacedFile(std::filesystem::path file);
  ~PlacedFile();
  PlacedFile(const PlacedFile&) = delete;
  PlacedFile& operator=(const PlacedFile&) = delete;
  void write(std::string_view bytes, uint64_t at);
  void sync();  // what was written survives a crash

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace heddle::checkpoint
