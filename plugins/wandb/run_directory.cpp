// Files of a run, written whole or line by line.
#include "run_directory.h"

#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

#include "heddle/base/text_file.h"

namespace heddle::wandb {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBeforeId = std::string_view("offline-run-YYYYMMDD_HHMMSS-").size();
constexpr std::string_view kStep = "{\"_step\":";

const std::string kKey = "wandb.save_dir";

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
  text_file::make_directory(path_, kKey);
}

void RunDirectory::write(const std::string& name, const std::string& text) const {
  text_file::write(path_ / name, text, kKey);
}

void RunDirectory::append(const std::string& line) const {
  text_file::append_line(path_ / kHistory, line, kKey);
}

void RunDirectory::keep_before(int64_t step) const {
  std::error_code none;
  if (!fs::is_regular_file(path_ / kHistory, none)) return;
  text_file::keep_lines(
      path_ / kHistory, [step](const std::string& line) { return is_before(line, step); }, kKey);
}

}  // namespace heddle::wandb
