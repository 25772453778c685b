// Lock on the stage directory itself (flock), which moves with the directory and leaves no file behind.
#include "lib/run/convert/convert_stage.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

// File that marks a stage: a non-empty directory without it belongs to the user.
constexpr const char* kMark = ".heddle_convert";

// Also accepts the temporary name of the mark, because a process may die before it renames the mark.
bool is_marked(const fs::path& stage) {
  for (const fs::directory_entry& entry : fs::directory_iterator(stage))
    if (entry.path().filename().string().starts_with(kMark)) return true;
  return false;
}

[[noreturn]] void refuse(const fs::path& place, const std::string& message, const std::string& hint) {
  throw Error(ErrorCode::usage, place.string(), message, hint);
}

[[noreturn]] void refuse_foreign(const fs::path& stage) {
  refuse(stage, "exists and was not left by heddle convert",
         "move it away or choose another directory; nothing is overwritten");
}

}  // namespace

void check_free(const fs::path& destination) {
  if (destination.empty() || destination == "." || destination.filename() == "..")
    refuse("heddle convert",
           "expected the name of a new directory, got " + text::quoted(destination.string()),
           "choose a directory that does not exist");
  std::error_code ignored;
  const fs::file_status status = fs::symlink_status(destination, ignored);
  if (!fs::exists(status)) return;
  const std::string other = "choose a directory that does not exist; nothing is overwritten";
  if (fs::is_symlink(status)) refuse(destination, "is a link", "give the target of the link");
  if (!fs::is_directory(status)) refuse(destination, "exists and is not a directory", other);
  if (!fs::is_empty(destination, ignored)) refuse(destination, "exists and is not empty", other);
}

ConvertStage::ConvertStage(fs::path destination)
    : destination_(std::move(destination)), stage_(checkpoint::stage_of(destination_)) {
  while (!lock()) {
  }
  try {
    take();
  } catch (...) {
    ::close(file_);
    throw;
  }
}

void ConvertStage::take() {
  if (!fs::is_empty(stage_) && !is_marked(stage_)) refuse_foreign(stage_);
  try {
    check_free(destination_);
    checkpoint::write_text(stage_ / kMark, "");
    clear();
  } catch (...) {
    give_up();
    throw;
  }
}

void ConvertStage::give_up() const try {
  clear();
  fs::remove_all(stage_);
} catch (const fs::filesystem_error&) {
  // The earlier error is more informative.
}

// The mark is removed last, so that an interrupted removal leaves a recognizable stage.
void ConvertStage::clear() const {
  for (const fs::directory_entry& entry : fs::directory_iterator(stage_))
    if (entry.path().filename() != kMark) fs::remove_all(entry.path());
}

// Returns false if the former holder published or removed the stage meanwhile, so the name is free again.
bool ConvertStage::lock() {
  std::error_code missing;
  const fs::file_status status = fs::symlink_status(stage_, missing);
  if (fs::exists(status) && !fs::is_directory(status)) refuse_foreign(stage_);
  checkpoint::make_directories(stage_);
  file_ = ::open(stage_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file_ < 0) return errno != ENOENT;
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(file_);
    throw Error(ErrorCode::usage, destination_.string(), "is being written by another heddle convert",
                "wait for that process, or choose another directory");
  }
  struct stat here {
  }, there{};
  const bool is_it = ::fstat(file_, &here) == 0 && ::stat(stage_.c_str(), &there) == 0 &&
                     here.st_ino == there.st_ino && here.st_dev == there.st_dev;
  if (!is_it) ::close(file_);
  return is_it;
}

ConvertStage::~ConvertStage() {
  if (!published_) give_up();
  if (file_ >= 0) ::close(file_);
}

void ConvertStage::publish() {
  checkpoint::publish(destination_);
  published_ = true;
  std::error_code ignored;
  fs::remove(destination_ / kMark, ignored);
}

}  // namespace heddle
