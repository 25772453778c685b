// Files of one process, overwritten for each input.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace heddle::fuzz {

// Files in a temporary directory, in memory if possible. Removed when the process exits normally.
class Files {
 public:
  Files() {
    std::error_code none;
    const std::filesystem::path memory = "/dev/shm";
    root_ = std::filesystem::is_directory(memory, none) && ::access(memory.c_str(), W_OK) == 0
                ? memory
                : std::filesystem::temp_directory_path();
    root_ /= "heddle_fuzz." + std::to_string(::getpid());
    std::filesystem::create_directories(root_);
  }
  ~Files() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    std::ofstream(root_ / name, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return root_ / name;
  }

 private:
  std::filesystem::path root_;
};

inline const Files& files() {
  static const Files all;
  return all;
}

// Splits the input at its first NUL.
inline std::pair<std::string_view, std::string_view> two_files(std::string_view bytes) {
  const size_t at = bytes.find('\0');
  return {bytes.substr(0, at), at == std::string_view::npos ? "" : bytes.substr(at + 1)};
}

}  // namespace heddle::fuzz
