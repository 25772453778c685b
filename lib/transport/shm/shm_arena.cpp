// Arenas in memfds, and sleeping on a futex in them.
#include "lib/transport/shm/shm_arena.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>

namespace heddle::mesh {
namespace {

constexpr size_t kPage = 4096;

size_t whole_pages(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

std::string reason(const std::string& what, int error) {
  return what + ": " + std::strerror(error);
}

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* most) {
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, most, nullptr, 0);
}

// 0, or the error; an interrupting signal is not an error.
int take_pages(int fd, size_t start, size_t bytes) {
  int failed = EINTR;
  while (failed == EINTR)
    failed = ::posix_fallocate(fd, static_cast<off_t>(start), static_cast<off_t>(bytes));
  return failed;
}

}  // namespace

void ring(Bell& bell) {
  if (bell.sleepers.load(std::memory_order_relaxed) != 0) ring_loudly(bell);
}

void ring_loudly(Bell& bell) {
  bell.word.fetch_add(1);
  futex(bell.word, FUTEX_WAKE, INT_MAX, nullptr);
}

void sleep(Bell& bell, uint32_t seen, std::chrono::microseconds most) {
  const timespec time{most.count() / 1000000, most.count() % 1000000 * 1000};
  futex(bell.word, FUTEX_WAIT, seen, &time);
}

Arena::Arena(int fd, char* start, size_t most)
    : fd_(fd), start_(start), most_(most), extents_(whole_pages(sizeof(ArenaHead)), kArenaBytes) {}

char* Arena::map(int fd, std::string& why) {
  void* start = ::mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (start != MAP_FAILED) {
    ::madvise(start, kArenaBytes, MADV_DONTDUMP);
    return static_cast<char*>(start);
  }
  why = reason("no addresses for shared memory", errno);
  return nullptr;
}

std::shared_ptr<Arena> Arena::make(uint64_t nonce, size_t most, std::string& why) {
  rlimit files{};
  ::getrlimit(RLIMIT_FSIZE, &files);
  if (files.rlim_cur != RLIM_INFINITY && files.rlim_cur < kArenaBytes) {
    why = "the limit on file sizes (ulimit -f) is below 16 GiB";
    return nullptr;
  }
  const int fd = ::memfd_create("heddle", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) {
    why = reason("memfd_create", errno);
    return nullptr;
  }
  const size_t head = whole_pages(sizeof(ArenaHead));
  int failed = most < head ? ENOSPC : ::ftruncate(fd, kArenaBytes) != 0 ? errno : 0;
  if (failed == 0) failed = take_pages(fd, 0, head);
  if (failed == 0) ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  if (failed != 0) why = reason("no room in shared memory", failed);
  char* start = failed == 0 ? map(fd, why) : nullptr;
  if (start == nullptr) {
    ::close(fd);
    return nullptr;
  }
  auto* first = new (start) ArenaHead;
  first->nonce = nonce;
  ::sched_getaffinity(0, sizeof first->cores, &first->cores);
  return std::shared_ptr<Arena>(new Arena(fd, start, most));
}

std::shared_ptr<Arena> Arena::open(const std::string& path, uint64_t nonce, std::string& why) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    why = reason(path, errno);
    return nullptr;
  }
  struct stat file {};  // a smaller file is not an arena, and reading it would end the process
  const bool whole = ::fstat(fd, &file) == 0 && file.st_size == static_cast<off_t>(kArenaBytes);
  if (!whole) why = path + " is of another process";
  char* start = whole ? map(fd, why) : nullptr;
  if (start == nullptr) {
    ::close(fd);
    return nullptr;
  }
  auto arena = std::shared_ptr<Arena>(new Arena(fd, start, 0));
  if (arena->head().nonce == nonce) return arena;
  why = path + " is of another process";
  return nullptr;
}

Arena::~Arena() {
  ::munmap(start_, kArenaBytes);
  ::close(fd_);
}

std::string Arena::path() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd_);
}

// Allocates pages within this rank's limit.
std::optional<size_t> Arena::room(size_t bytes, int& failed) {
  failed = ENOSPC;
  if (whole_pages(sizeof(ArenaHead)) + extents_.taken() + bytes > most_) return std::nullopt;
  const auto start = extents_.take(bytes);
  if (!start) return std::nullopt;
  failed = take_pages(fd_, *start, bytes);
  if (failed == 0) return start;
  extents_.give(*start, bytes);
  return std::nullopt;
}

bool Arena::Retired::tell() {
  std::erase_if(untold, [&](const auto& other) {
    Region* theirs = other->find(key);
    if (theirs != nullptr) theirs->gone.fetch_add(1, std::memory_order_acq_rel);
    return theirs != nullptr;
  });
  return untold.empty() && region->gone.load(std::memory_order_acquire) == members;
}

// The best free one with enough memory already.
Region* Arena::free_line(size_t bytes) {
  auto found = retired_.end();
  for (auto one = retired_.begin(); one != retired_.end(); ++one)
    if (one->tell() && (found == retired_.end() || one->region->bytes == bytes)) found = one;
  if (found != retired_.end()) {
    Region* region = found->region;
    retired_.erase(found);
    region->key = 0;
    return region;
  }
  const uint32_t used = head().used;
  if (used == kRegions) return nullptr;
  head().used = used + 1;
  return &head().regions[used];
}

Region* Arena::take(size_t bytes, std::string& why) {
  bytes = whole_pages(bytes);
  const std::lock_guard lock(mutex_);
  Region* region = free_line(bytes);
  if (region == nullptr) {
    why = "it has " + std::to_string(kRegions) + " groups in shared memory already";
    return nullptr;
  }
  region->gone = 0;
  region->state = RegionState::ready;
  if (region->bytes == bytes) return region;
  if (region->bytes > 0) extents_.give(region->offset, region->bytes);
  int failed = 0;
  const auto start = room(bytes, failed);
  region->offset = start.value_or(0);
  region->bytes = start ? bytes : 0;
  if (start) return region;
  region->state = RegionState::refused;
  why = reason("no room in shared memory", failed);
  return region;
}

void Arena::publish(Region& region, uint64_t key) {
  region.key.store(key, std::memory_order_release);
}

void Arena::retire(Region& region, std::vector<std::shared_ptr<Arena>> other_arenas) {
  const std::lock_guard lock(mutex_);
  const auto members = static_cast<uint32_t>(other_arenas.size());
  retired_.push_back({&region, region.key, members, std::move(other_arenas)});
  retired_.back().tell();
}

Region* Arena::find(uint64_t key) const {
  const uint32_t used = head().used;
  for (uint32_t line = 0; line < used; ++line) {
    Region& region = head().regions[line];
    if (region.key.load(std::memory_order_acquire) == key) return &region;
  }
  return nullptr;
}

char* Arena::lend(size_t bytes) {
  const std::lock_guard lock(mutex_);
  int failed = 0;
  const auto start = room(whole_pages(bytes), failed);
  return start ? start_ + *start : nullptr;
}

void Arena::take_back(char* memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const size_t start = offset(memory);
  bytes = whole_pages(bytes);
  ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(start),
              static_cast<off_t>(bytes));
  extents_.give(start, bytes);
}

}  // namespace heddle::mesh
