// Lock on a file in checkpoint_dir, owned by the open file description (F_OFD_SETLK).
#include "lib/run/checkpointing/run_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <thread>

#include "core/base/pattern.h"
#include "core/base/regular_file.h"
#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"

namespace heddle {
namespace {

std::string this_process() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return "process " + std::to_string(::getpid()) + " on " + host;
}

// Describes a lock of the whole file, owned by this open file description, not by a process or thread.
struct flock all_of_it() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool is_locked(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return false;
  struct flock other = all_of_it();
  const bool locked = ::fcntl(file, F_OFD_GETLK, &other) == 0 && other.l_type != F_UNLCK;
  ::close(file);
  return locked;
}

Error held_by_another(const std::filesystem::path& directory) {
  std::string holder;
  std::ifstream in(directory / kRunLock);
  std::getline(in, holder);
  return {ErrorCode::config, "checkpoint.checkpoint_dir",
          "another run saves in " + directory.string() + (holder.empty() ? "" : ": " + holder),
          "stop that run, or set checkpoint.checkpoint_dir to another directory"};
}

// Errors are ignored: creating the lock file then fails too.
void make(const std::filesystem::path& directory) try {
  checkpoint::make_directories(directory);
} catch (const Error&) {
}

}  // namespace

void refuse_where_a_run_saves(const std::filesystem::path& directory, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (is_locked(directory / kRunLock)) {
    if (std::chrono::steady_clock::now() >= end) throw held_by_another(directory);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

bool is_run_lock(const std::filesystem::path& file) {
  static const text::Pattern kHolder("process [0-9]{1,18} on [^ \n]*\n?");
  constexpr size_t kLongest = 512;
  return !kHolder.match(read_beginning(file, kLongest)).empty();
}

RunLock::RunLock(const std::filesystem::path& directory) {
  make(directory);
  const std::filesystem::path path = directory / kRunLock;
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) return;
  struct flock whole = all_of_it();
  held_ = ::fcntl(file_, F_OFD_SETLK, &whole) == 0;
  if (!held_ && (errno == EAGAIN || errno == EACCES)) {
    ::close(file_);
    throw held_by_another(directory);
  }
  const std::string self = this_process() + "\n";
  if (held_ && ::ftruncate(file_, 0) == 0) [[maybe_unused]]
    const ssize_t said = ::pwrite(file_, self.data(), self.size(), 0);  // fails if the disk is full
}

RunLock::~RunLock() {
  if (file_ >= 0) ::close(file_);
}

void refuse_if_saved_since(const std::filesystem::path& directory, const std::string& latest) {
  if (checkpoint::pointed(directory / "LATEST") == latest) return;
  throw Error(ErrorCode::config, "checkpoint.checkpoint_dir",
              "another run has saved in " + directory.string() + " while this run was starting",
              "start the run again; it resumes from the new checkpoint");
}

}  // namespace heddle
