// flock() on the stage itself: the lock goes where the directory goes, and nothing stays behind.
#include "trainer/cli/convert_stage.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/checkpoint/publish.h"

namespace heddle::cli {

namespace fs = std::filesystem;

void check_free(const fs::path& destination) {
  std::error_code ignored;
  if (fs::exists(destination, ignored) && !fs::is_empty(destination, ignored))
    throw Error(ErrorCode::usage, destination.string(), "is there and is not empty",
                "name a directory that is not there yet; nothing is overwritten");
}

ConvertStage::ConvertStage(fs::path destination)
    : destination_(std::move(destination)), stage_(checkpoint::stage_of(destination_)) {
  while (!lock()) {
  }
  try {
    check_free(destination_);
    std::error_code failed;
    fs::remove(destination_, failed);  // an empty directory
    for (const fs::directory_entry& entry : fs::directory_iterator(stage_)) fs::remove_all(entry.path());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(stage_, ignored);
    ::close(file_);
    throw;
  }
}

// False where the process that held it has published or removed it meanwhile: the name is free again.
bool ConvertStage::lock() {
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
  std::error_code ignored;
  if (!published_) fs::remove_all(stage_, ignored);
  if (file_ >= 0) ::close(file_);
}

void ConvertStage::publish() {
  checkpoint::publish(destination_);
  published_ = true;
}

}  // namespace heddle::cli
