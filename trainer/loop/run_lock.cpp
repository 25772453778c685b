// flock() on a file beside the checkpoints.
#include "trainer/loop/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "heddle/base/error.h"
#include "heddle/checkpoint/publish.h"

namespace heddle {
namespace {

std::string this_process() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return "process " + std::to_string(::getpid()) + " on " + host;
}

// Where it cannot be made, the file in it cannot either.
void make(const std::filesystem::path& directory) try {
  checkpoint::make_directories(directory);
} catch (const Error&) {
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& directory) {
  make(directory);
  const std::filesystem::path path = directory / ".lock";
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) return;
  held_ = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
  if (!held_ && errno == EWOULDBLOCK) {
    std::string holder;
    std::ifstream in(path);
    std::getline(in, holder);
    ::close(file_);
    throw Error(ErrorCode::config, "checkpoint.checkpoint_dir",
                "another run saves in " + directory.string() + (holder.empty() ? "" : ": " + holder),
                "end that run, or give this one a directory of its own");
  }
  const std::string self = this_process() + "\n";
  if (held_ && ::ftruncate(file_, 0) == 0) held_ = ::pwrite(file_, self.data(), self.size(), 0) > 0;
}

RunLock::~RunLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace heddle
