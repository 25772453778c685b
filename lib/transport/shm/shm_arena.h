// Memory that the ranks of one machine share: each has an arena, which the others map and find regions in.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lib/transport/shm/shm_extents.h"

namespace heddle::mesh {

constexpr size_t kLine = 64;                      // bytes that move between cores together: a cache line
constexpr size_t kArenaBytes = size_t{16} << 30;  // addresses, not memory

// A futex on which a process sleeps until another one wakes it.
struct alignas(kLine) Bell {
  std::atomic<uint32_t> word{0}, sleepers{0};
};

// Wakes all sleepers; costs one load if there are none.
void ring(Bell& bell);
// Wakes all, and lets the next sleep() with an older `seen` return at once.
void ring_loudly(Bell& bell);
// Sleeps until a ring after the word was `seen`, or for `most`. The caller counts as a sleeper.
void sleep(Bell& bell, uint32_t seen, std::chrono::microseconds most);

enum class RegionState : uint32_t { ready, refused };

// A line of an arena's directory. The key says which group it belongs to; refused: there was no memory.
struct alignas(kLine) Region {
  std::atomic<uint64_t> key{0};
  std::atomic<RegionState> state{RegionState::ready};
  std::atomic<uint32_t> gone{0};  // other members that have left the group and do not read this any more
  uint64_t offset = 0, bytes = 0;
};

constexpr int kRegions = 1023;

// The first bytes of an arena.
struct ArenaHead {
  cpu_set_t cores{};   // that this rank may use
  uint64_t nonce = 0;  // distinguishes it from another process with the same id
  Bell bell;           // of a rank that waits
  Bell helper;         // of its thread that continues while the rank computes
  alignas(kLine) std::atomic<uint32_t> unfinished{0};  // collectives that the rank has posted
  std::atomic<uint32_t> driven{0};                     // the rank itself waits, and therefore moves them
  std::atomic<uint32_t> used{0};                       // lines of the directory
  Region regions[kRegions];
};

// One rank's arena. The memory has no name anywhere (memfd), so nothing can stay behind, and its pages are
// allocated before use, so that a lack of memory is an error here and not a SIGBUS later.
class Arena {
 public:
  // Creates this rank's own; regions may take `most` bytes in all. Null on failure, with the reason in `why`.
  static std::shared_ptr<Arena> make(uint64_t nonce, size_t most, std::string& why);
  // Another rank's, by its path; null as above.
  static std::shared_ptr<Arena> open(const std::string& path, uint64_t nonce, std::string& why);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::string path() const;  // for ranks that see this process: /proc/PID/fd/N
  ArenaHead& head() const { return *reinterpret_cast<ArenaHead*>(start_); }
  char* memory(const Region& region) const { return start_ + region.offset; }

  // Own arena: memory under a key, to be published once it is filled in; its state is `refused` without
  // memory, with the reason in `why`. Null when the directory is full.
  Region* take(size_t bytes, std::string& why);
  static void publish(Region& region, uint64_t key);
  // Own arena: this rank has left the group. The line is free for another one once the others have left too;
  // each says so in the lines of all, so that none is reused while a rank may still look for its key.
  void retire(Region& region, std::vector<std::shared_ptr<Arena>> other_arenas);

  // Another rank's region of that key; null if it does not exist yet.
  Region* find(uint64_t key) const;

  // Own arena: memory for a tensor, in whole zeroed pages; null without memory. From any thread.
  char* lend(size_t bytes);
  void take_back(char* memory, size_t bytes);
  // The offset of that memory in the arena; 0: not in the arena.
  size_t offset(const char* memory) const {
    return memory > start_ && memory < start_ + kArenaBytes ? static_cast<size_t>(memory - start_) : 0;
  }
  const char* at(size_t place) const { return start_ + place; }

 private:
  Arena(int fd, char* start, size_t most);
  static char* map(int fd, std::string& why);
  std::optional<size_t> room(size_t bytes, int& failed);
  Region* free_line(size_t bytes);

  struct Retired {
    Region* region;
    uint64_t key;
    uint32_t members;                            // others
    std::vector<std::shared_ptr<Arena>> untold;  // that do not know yet that this rank left

    bool tell();  // true once all others are gone too
  };

  const int fd_;
  char* const start_;
  const size_t most_;
  std::mutex mutex_;
  Extents extents_;
  std::vector<Retired> retired_;
};

}  // namespace heddle::mesh
