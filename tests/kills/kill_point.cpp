// Wrappers of the C library's file functions that count calls and kill the process, or fail, at a chosen
// call.
#include "kill_point.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <thread>

namespace kills {
namespace {

KillPoint fate;
std::atomic<bool> is_armed = false;
std::atomic<int64_t>* count = nullptr;  // shared by all forked processes

void die() {
  ::kill(fate.whom == KillPoint::Whom::group ? 0 : ::getpid(), SIGKILL);
  for (;;) ::pause();
}

void die_later() {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::microseconds(fate.microseconds));
    die();
  }).detach();
}

enum class Kind { grows, writes, syncs, adds, removes };  // adds: adds a directory entry

bool fails_at(Kind kind) {
  if (fate.error == ENOSPC) return kind == Kind::grows || kind == Kind::writes || kind == Kind::adds;
  if (fate.error == EIO) return kind == Kind::writes || kind == Kind::syncs;
  return kind == Kind::grows || kind == Kind::adds || kind == Kind::removes;
}

// Runs one counted file operation. `half` performs half of it, if the operation can be split.
template <class Whole, class Half>
auto operation(Kind kind, const Whole& whole, const Half& half) -> decltype(whole()) {
  if (!is_armed) return whole();
  const int64_t number = ++*count;
  if (fate.when == KillPoint::When::fails && fate.operation != 0 && number >= fate.operation &&
      fails_at(kind)) {
    if (number == fate.operation && fate.error == ENOSPC) half();
    errno = fate.error;
    return -1;
  }
  if (number != fate.operation || fate.when == KillPoint::When::fails) return whole();
  if (fate.when == KillPoint::When::later) die_later();
  if (fate.when == KillPoint::When::halfway) half();
  if (fate.when == KillPoint::When::before || fate.when == KillPoint::When::halfway) die();
  const auto result = whole();
  if (fate.when == KillPoint::When::after) die();
  return result;
}

template <class Whole>
auto operation(Kind kind, const Whole& whole) {
  return operation(kind, whole, [] {});
}

template <class Function>
Function* own_of(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

bool is_file(int descriptor) {
  struct stat status {};
  return is_armed && descriptor > STDERR_FILENO && ::fstat(descriptor, &status) == 0 &&
         S_ISREG(status.st_mode);
}

}  // namespace

void share_the_count() {
  void* shared = ::mmap(nullptr, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) std::abort();
  count = new (shared) std::atomic<int64_t>(0);
}

void kill_at_operation(const KillPoint& one) {
  fate = one;
  *count = 0;
  is_armed = true;
}

int64_t operations() {
  return *count;
}

}  // namespace kills

using kills::is_file;
using kills::Kind;
using kills::operation;
using kills::own_of;

#define OWN(name) static auto* const own = own_of<decltype(name)>(#name)

// Exported, so that libraries resolve these names here instead of in the C library.
#pragma GCC visibility push(default)
extern "C" {

int open(const char* path, int flags, ...) {
  using Open = int(const char*, int, ...);
  static auto* const own = own_of<Open>("open");
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if ((flags & O_CREAT) == 0) return own(path, flags, mode);
  return operation(Kind::grows, [&] { return own(path, flags, mode); });
}

ssize_t write(int file, const void* data, size_t bytes) {
  OWN(write);
  if (!is_file(file)) return own(file, data, bytes);
  return operation(
      Kind::writes, [&] { return own(file, data, bytes); }, [&] { own(file, data, bytes / 2); });
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) {
  OWN(pwrite);
  if (!is_file(file)) return own(file, data, bytes, at);
  return operation(
      Kind::writes, [&] { return own(file, data, bytes, at); }, [&] { own(file, data, bytes / 2, at); });
}

ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t at) {
  return pwrite(file, data, bytes, at);
}

ssize_t writev(int file, const struct iovec* parts, int count) {
  OWN(writev);
  if (!is_file(file)) return own(file, parts, count);
  return operation(
      Kind::writes, [&] { return own(file, parts, count); }, [&] { own(file, parts, count / 2); });
}

int fsync(int file) {
  OWN(fsync);
  return operation(Kind::syncs, [&] { return own(file); });
}

int fdatasync(int file) {
  OWN(fdatasync);
  return operation(Kind::syncs, [&] { return own(file); });
}

int rename(const char* from, const char* to) noexcept {
  OWN(rename);
  return operation(Kind::adds, [&] { return own(from, to); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  OWN(mkdir);
  return operation(Kind::adds, [&] { return own(path, mode); });
}

int symlink(const char* target, const char* path) noexcept {
  OWN(symlink);
  return operation(Kind::adds, [&] { return own(target, path); });
}

int unlink(const char* path) noexcept {
  OWN(unlink);
  return operation(Kind::removes, [&] { return own(path); });
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  OWN(unlinkat);
  return operation(Kind::removes, [&] { return own(folder, path, flags); });
}

int rmdir(const char* path) noexcept {
  OWN(rmdir);
  return operation(Kind::removes, [&] { return own(path); });
}

int remove(const char* path) noexcept {
  OWN(remove);
  return operation(Kind::removes, [&] { return own(path); });
}

int ftruncate(int file, off_t size) noexcept {
  OWN(ftruncate);
  return operation(Kind::grows, [&] { return own(file, size); });
}
}
#pragma GCC visibility pop
