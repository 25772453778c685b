// Writes with POSIX calls, so that each failure has its reason.
#include "files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <system_error>

#include "heddle/base/error.h"

namespace heddle::mlflow {
namespace {

namespace fs = std::filesystem;

Error cannot_write(const fs::path& file, int number) {
  return Error(ErrorCode::io, file.string(), file.string() + " cannot be written: " + std::strerror(number),
               number == ENOSPC ? "make room on the disk, or choose another place with mlflow.tracking_uri"
                                : "choose another place with mlflow.tracking_uri");
}

void put(const fs::path& file, int flags, const std::string& text) {
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
  if (descriptor < 0) throw cannot_write(file, errno);
  int failed = 0;
  for (size_t written = 0; written < text.size() && failed == 0;) {
    const ssize_t count = ::write(descriptor, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      failed = count < 0 ? errno : ENOSPC;
    else
      written += static_cast<size_t>(count);
  }
  close(descriptor);
  if (failed != 0) throw cannot_write(file, failed);
}

bool is_before(const std::string& line, int64_t step) {
  int64_t there = 0;
  const size_t at = line.rfind(' ');
  if (at == line.npos) return true;
  const auto read = std::from_chars(line.data() + at + 1, line.data() + line.size(), there);
  return read.ec != std::errc() || there < step;
}

}  // namespace

void make_directory(const fs::path& directory) {
  std::error_code failed;
  fs::create_directories(directory, failed);
  if (failed) throw cannot_write(directory, failed.value());
}

void write_file(const fs::path& file, const std::string& text) {
  make_directory(file.parent_path());
  put(file, O_TRUNC, text);
}

void replace_file(const fs::path& file, const std::string& text) {
  make_directory(file.parent_path());
  const fs::path fresh = file.parent_path() / ("." + file.filename().string() + ".new");
  put(fresh, O_TRUNC, text);
  std::error_code failed;
  fs::rename(fresh, file, failed);
  if (failed) throw cannot_write(file, failed.value());
}

void append_line(const fs::path& file, const std::string& line) {
  put(file, O_APPEND, line + "\n");
}

void keep_before(const fs::path& file, int64_t step) {
  std::error_code failed;
  std::ifstream in(file, std::ios::binary);
  uintmax_t kept = 0;
  for (std::string line; std::getline(in, line) && !in.eof() && is_before(line, step);)
    kept += line.size() + 1;
  in.close();
  if (kept == fs::file_size(file, failed)) return;
  fs::resize_file(file, kept, failed);
  if (failed) throw cannot_write(file, failed.value());
}

std::string first_line(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string out;
  std::getline(in, out);
  return out;
}

}  // namespace heddle::mlflow
