// Memory that the ranks of one machine share: each has an arena, which the others map and find regions in.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace heddle::mesh {

constexpr size_t kLine = 64;  // bytes that move between cores as one

// Where a process sleeps until another one has something for it.
struct alignas(kLine) Bell {
  std::atomic<uint32_t> word{0}, sleepers{0};
};

// Wakes all who sleep here; costs a load when nobody does.
void ring(Bell& bell);
// Wakes all, and lets the next sleep() with an older `seen` return at once.
void ring_loudly(Bell& bell);
// Sleeps until somebody rings after the word was `seen`, or for `most`. The caller is one of the sleepers.
void sleep(Bell& bell, uint32_t seen, std::chrono::microseconds most);

enum class RegionState : uint32_t { ready, refused, closed };

// A line of an arena's directory. The key says which group it belongs to; refused: there was no memory.
struct alignas(kLine) Region {
  std::atomic<uint64_t> key{0};
  std::atomic<RegionState> state{RegionState::ready};
  uint64_t offset = 0, bytes = 0;
};

constexpr int kRegions = 1023;

// The first bytes of an arena.
struct ArenaHead {
  cpu_set_t cores{};   // that this rank may use
  uint64_t nonce = 0;  // tells it from another process that got the same number
  Bell bell;           // of a rank that waits
  Bell helper;         // of its thread that goes on while the rank computes
  alignas(kLine) std::atomic<uint32_t> unfinished{0};  // collectives that the rank has posted
  std::atomic<uint32_t> driven{0};                     // the rank itself waits, and so moves them
  std::atomic<uint32_t> used{0};                       // lines of the directory
  Region regions[kRegions];
};

// One rank's arena. The memory has no name anywhere (memfd), so that nothing can stay behind, and its pages
// are taken before they are used, so that a full machine is an error here and not a SIGBUS later.
class Arena {
 public:
  // This rank's own; regions may take `most` bytes in all. Null when it cannot be had, and why says the
  // cause.
  static std::shared_ptr<Arena> make(uint64_t nonce, size_t most, std::string& why);
  // Another rank's, by its path; null as above.
  static std::shared_ptr<Arena> open(const std::string& path, uint64_t nonce, std::string& why);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::string path() const;  // for ranks that see this process: /proc/PID/fd/N
  ArenaHead& head() const { return *reinterpret_cast<ArenaHead*>(start_); }
  char* memory(const Region& region) const { return start_ + region.offset; }

  // Own arena: zeroed memory under a key, to be published once it is filled in; its state is refused when
  // there is none, and why says the cause. Null when the directory is full.
  Region* take(size_t bytes, std::string& why);
  static void publish(Region& region, uint64_t key);
  // Own arena: the region is free once the regions of that key in all `others` are closed too; never, when
  // the group did not meet, as nobody knows then who still looks at it.
  void retire(Region& region, std::vector<const Region*> others);

  // Another's region of that key; null when it is not there yet.
  const Region* find(uint64_t key) const;

 private:
  Arena(int fd, char* start, size_t most) : fd_(fd), start_(start), most_(most) {}
  static char* map(int fd, std::string& why);
  Region* reuse(size_t bytes);

  struct Retired {
    Region* region;
    uint64_t key;
    std::vector<const Region*> others;
  };

  const int fd_;
  char* const start_;
  const size_t most_;
  size_t used_ = 0;
  std::vector<Retired> retired_;
};

}  // namespace heddle::mesh
