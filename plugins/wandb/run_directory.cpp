// Files of one run: written whole, or line by line.
#include "run_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "heddle/base/error.h"

namespace heddle::wandb {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBeforeId = std::string_view("offline-run-YYYYMMDD_HHMMSS-").size();
constexpr std::string_view kStep = "{\"_step\":";

Error cannot_write(const fs::path& file, int number) {
  return Error(ErrorCode::io, file.string(), file.string() + " cannot be written: " + std::strerror(number),
               number == ENOSPC ? "make room on the disk, or choose another place with wandb.save_dir"
                                : "choose another place with wandb.save_dir");
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
  if (!line.starts_with(kStep)) return true;
  std::from_chars(line.data() + kStep.size(), line.data() + line.size(), there);
  return there < step;
}

}  // namespace

fs::path find_run(const fs::path& runs, const std::string& id) {
  fs::path out;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(runs, none)) {
    const std::string name = entry.path().filename().string();
    const bool has_id = name.size() == kBeforeId + id.size() && name.ends_with("-" + id);
    if (name.starts_with("offline-run-") && has_id && fs::is_directory(entry.path(), none) &&
        (out.empty() || out.filename().string() < name))
      out = entry.path();
  }
  return out;
}

RunDirectory::RunDirectory(fs::path path) : path_(std::move(path)) {
  std::error_code failed;
  fs::create_directories(path_, failed);
  if (failed) throw cannot_write(path_, failed.value());
}

void RunDirectory::write(const std::string& name, const std::string& text) const {
  put(path_ / name, O_TRUNC, text);
}

void RunDirectory::append(const std::string& line) const {
  put(path_ / kHistory, O_APPEND, line + "\n");
}

void RunDirectory::keep_before(int64_t step) const {
  const fs::path file = path_ / kHistory;
  std::error_code failed;
  if (!fs::is_regular_file(file, failed)) return;
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

}  // namespace heddle::wandb
