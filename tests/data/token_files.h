// Token files and a temporary directory for tests.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace heddle {

// Temporary directory, removed in the destructor.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "heddle_test_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

template <class T>
void append_values(std::ofstream& out, const std::vector<T>& values) {
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(T)));
}

// Writes a header of 256 int32 that begins with `words`, then the tokens.
template <class T>
void write_token_file(const std::filesystem::path& file, std::vector<int32_t> words,
                      const std::vector<T>& tokens) {
  words.resize(256, 0);
  std::ofstream out(file, std::ios::binary);
  append_values(out, words);
  append_values(out, tokens);
}

}  // namespace heddle
