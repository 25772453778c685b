// Files of the store, written with heddle/base/text_file.h. Errors name the key that selects another store.
#include "files.h"

#include <charconv>
#include <system_error>

#include "heddle/base/text_file.h"

namespace heddle::mlflow {
namespace {

namespace fs = std::filesystem;

const std::string kKey = "mlflow.tracking_uri";

bool is_before(const std::string& line, int64_t step) {
  int64_t there = 0;
  const size_t at = line.rfind(' ');
  if (at == line.npos) return true;
  const auto read = std::from_chars(line.data() + at + 1, line.data() + line.size(), there);
  return read.ec != std::errc() || there < step;
}

}  // namespace

void make_directory(const fs::path& directory) {
  text_file::make_directory(directory, kKey);
}

void write_file(const fs::path& file, const std::string& text) {
  make_directory(file.parent_path());
  text_file::write(file, text, kKey);
}

void replace_file(const fs::path& file, const std::string& text) {
  const fs::path fresh = file.parent_path() / ("." + file.filename().string() + ".new");
  write_file(fresh, text);
  std::error_code failed;
  fs::rename(fresh, file, failed);
  if (failed) throw text_file::cannot_write(file, failed.value(), kKey);
}

void append_line(const fs::path& file, const std::string& line) {
  text_file::append_line(file, line, kKey);
}

void keep_before(const fs::path& file, int64_t step) {
  text_file::keep_lines(
      file, [step](const std::string& line) { return is_before(line, step); }, kKey);
}

}  // namespace heddle::mlflow
