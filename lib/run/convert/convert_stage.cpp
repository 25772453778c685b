// flock() on the stage itself: the lock goes where the directory goes, and nothing stays behind.
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

// The mark of a stage: a non-empty directory without it belongs to the user.
constexpr const char* kMark = ".heddle_convert";

// Its temporary file counts too: a process may end before the mark has its name.
bool is_marked(const fs::path& stage) {
  for (const fs::directory_entry& entry : fs::directory_iterator(stage))
    if (entry.path().filename().string().starts_with(kMark)) return true;
  return false;
}

[[noreturn]] void refuse(const fs::path& place, const std::string& message, const std::string& hint) {
  throw Error(ErrorCode::usage, place.string(), message, hint);
}

[[noreturn]] void refuse_foreign(const fs::path& stage) {
  refuse(stage, "is in the way, and no heddle convert has left it",
         "move it away, or name another directory; nothing is overwritten");
}

}  // namespace

void check_free(const fs::path& destination) {
  if (destination.empty() || destination == "." || destination.filename() == "..")
    refuse("heddle convert",
           "expected the name of a new directory, got " + text::quoted(destination.string()),
           "name a directory that is not there yet");
  std::error_code ignored;
  const fs::file_status status = fs::symlink_status(destination, ignored);
  if (!fs::exists(status)) return;
  const std::string other = "name a directory that is not there yet; nothing is overwritten";
  if (fs::is_symlink(status)) refuse(destination, "is a link", "name the directory that it leads to itself");
  if (!fs::is_directory(status)) refuse(destination, "is there and is not a directory", other);
  if (!fs::is_empty(destination, ignored)) refuse(destination, "is there and is not empty", other);
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

// The mark is removed last, so that an interrupted removal leaves a recognisable stage.
void ConvertStage::clear() const {
  for (const fs::directory_entry& entry : fs::directory_iterator(stage_))
    if (entry.path().filename() != kMark) fs::remove_all(entry.path());
}

// False where the process that held it has published or removed it meanwhile: the name is free again.
bool ConvertStage::lock() {
  std::error_code missing;
  const fs::file_status status = fs::symlink_status(stage_, missing);
  if (fs::exists(status) && !fs::is_directory(status)) refuse_foreign(stage_);
  checkpoint::make_directories(stage_);
  file_ = ::open(stage_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file_ < 0) return errno != ENOENT;
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(file_);
    throw Error(ErrorCode::usage, destination_.string(), "is being made by another heddle convert",
                "wait for it, or name another directory");
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
