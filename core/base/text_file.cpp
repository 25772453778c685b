// POSIX calls, so that each failure has its reason.
#include "heddle/base/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

namespace heddle::text_file {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& file, int flags, std::string_view text, const std::string& key) {
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
  if (descriptor < 0) throw cannot_write(file, errno, key);
  try {
    write_all(descriptor, text, file, key);
  } catch (const Error&) {
    close(descriptor);
    throw;
  }
  close(descriptor);
}

}  // namespace

Error cannot_write(const fs::path& file, int number, const std::string& key) {
  return Error(ErrorCode::io, file.string(), file.string() + " cannot be written: " + std::strerror(number),
               (number == ENOSPC ? "make room on the disk, or " : "") + ("choose another place with " + key));
}

void write_all(int descriptor, std::string_view text, const fs::path& file, const std::string& key) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw cannot_write(file, count < 0 ? errno : ENOSPC, key);
    text.remove_prefix(static_cast<size_t>(count));
  }
}

void make_directory(const fs::path& directory, const std::string& key) {
  std::error_code failed;
  fs::create_directories(directory, failed);
  if (failed) throw cannot_write(directory, failed.value(), key);
}

void write(const fs::path& file, std::string_view text, const std::string& key) {
  put(file, O_TRUNC, text, key);
}

void append_line(const fs::path& file, const std::string& line, const std::string& key) {
  put(file, O_APPEND, line + "\n", key);
}

void keep_lines(const fs::path& file, const std::function<bool(const std::string&)>& is_wanted,
                const std::string& key) {
  std::ifstream in(file, std::ios::binary);
  uintmax_t kept = 0;
  for (std::string line; std::getline(in, line) && !in.eof() && is_wanted(line);) kept += line.size() + 1;
  in.close();
  std::error_code failed;
  if (kept == fs::file_size(file, failed)) return;
  fs::resize_file(file, kept, failed);
  if (failed) throw cannot_write(file, failed.value(), key);
}

std::string first_line(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string out;
  std::getline(in, out);
  return out;
}

}  // namespace heddle::text_file
