// Moves the bytes of a rank's groups over shared memory: the rank itself where it posts and waits, and a
// helper thread where it computes while others wait for it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lib/transport/liveness/watch.h"
#include "lib/transport/shm/shm_group.h"

namespace heddle::mesh {

struct ShmEngineOptions {
  std::map<int, std::shared_ptr<Arena>> arenas;  // of this machine's ranks, by global rank
  int rank = 0;                                  // global
  std::chrono::milliseconds timeout{};
};

// A collective of a few bytes needs no thread switch: posting puts this rank's part where the others read it,
// waiting reads theirs. A waiting thread moves all groups of the rank, so the order in which ranks wait does
// not matter. A waiting rank spins briefly, then sleeps. The watchdog outlives the engine, the engine its
// groups.
class ShmEngine {
 public:
  ShmEngine(ShmEngineOptions options, Watch& watch);
  ~ShmEngine();
  ShmEngine(const ShmEngine&) = delete;
  ShmEngine& operator=(const ShmEngine&) = delete;

  const std::shared_ptr<Arena>& arena() const { return options_.arenas.at(options_.rank); }
  std::unique_ptr<ShmGroup> group(ShmGroupPlace place);
  void forget(std::unique_ptr<ShmGroup> group);

  void post(ShmGroup& group, const std::shared_ptr<Pending>& pending);
  // Throws the watchdog's error when a rank is lost or time is up, or the call's own error.
  void wait(ShmGroup& group, Pending& pending);
  bool done(Pending& pending);

 private:
  class Driving;
  using Clock = std::chrono::steady_clock;

  std::unique_lock<std::mutex> take_over();  // before the helper, which is asked to let go
  bool advance();                            // all groups, a little
  bool advance(ShmGroup& group);
  void note_unfinished();
  bool spin(const Pending& pending);
  void doze(std::unique_lock<std::mutex>& lock, const Pending& pending, std::chrono::microseconds most);
  void check(std::unique_lock<std::mutex>& lock, ShmGroup& group, const Pending& pending,
             std::chrono::milliseconds start);
  void help();
  void help_on(std::unique_lock<std::mutex>& lock);

  const ShmEngineOptions options_;
  Watch& watch_;
  ArenaHead& head_;
  const bool crowded_;      // more ranks than cores
  const bool spare_cores_;  // fewer: a helper does not compete with computing ranks
  std::mutex mutex_;
  std::atomic<int> wanted_{0};
  std::vector<ShmGroup*> busy_;  // with calls under way
  int waiters_ = 0;
  bool stop_ = false;
  bool given_up_ = false;  // the error was thrown: memory of pending calls may be freed now
  std::thread helper_;
};

}  // namespace heddle::mesh
