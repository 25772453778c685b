// Watch, the time limit of kits: a thread runs them, and its caller gives up a kit that does not end.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/running_call.h"
#include "heddle/testing/conformance.h"

namespace heddle::kits {

class CheckDevice;

// Thrown in the abandoned thread of the kits once its kit returns. Not a std::exception, so that no kit
// reports it as a fault.
struct GivenUp {};

// The position of a rank, for the watcher.
struct RankState {
  RunningCall call;
  std::atomic<int> waits = 0;       // number of collectives in which it waits, 0 or 1
  std::atomic<int64_t> waited = 0;  // number of collectives in which it has waited so far
};

// The state shared by the thread of the kits and its caller.
class HEDDLE_API Watch {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Watch(KitOptions options) : options(std::move(options)) {}

  const KitOptions options;
  std::string plugin = {};                         // name of the plugin, once known
  std::shared_ptr<const CheckDevice> device = {};  // device of KitOptions::device; null: the CPU
  std::string the_plugin() const { return plugin.empty() ? "the plugin" : "the plugin '" + plugin + "'"; }

  // Called when a kit begins. Throws GivenUp.
  void begins(const std::string& rule);
  // Called with the result of a kit. Measures its time.
  void ended(const Check& check);
  // Returns why no further kit is run, or "".
  std::string exhausted() const;

  // Returns the Watch of this thread, or null.
  static Watch* current();

  // A scope around one rank of a training run, on the thread that runs it.
  class HEDDLE_API Rank {
   public:
    Rank(Watch* watch, int rank);
    ~Rank();
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;

   private:
    Watch* watch_;
    int rank_;
    std::shared_ptr<RankState> state_;
  };
  // A scope in which the rank of this thread waits for other ranks.
  class HEDDLE_API Waiting {
   public:
    Waiting();
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
  };
  // Returns the number of collectives in which this thread's rank has waited; 0 outside of ranks of a kit.
  static int64_t waited_of_thread();
  // Returns the timeout of collectives: half of the time limit.
  std::chrono::milliseconds patience() const;

 private:
  friend Report run_watched(const KitOptions& options, const std::function<void()>& kits);
  friend class Rank;
  double limit() const;       // seconds for the running kit
  std::string where() const;  // of the ranks that have not ended, computing ranks first
  void give_up();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Report report_;
  std::string rule_;  // rule of the running kit; empty: none
  Clock::time_point began_ = Clock::now(), first_ = Clock::now();
  std::map<int, std::shared_ptr<RankState>> ranks_;
  bool done_ = false, given_up_ = false, slow_ = false, failed_ = false;
};

// Runs `kits` in a thread whose Watch::current() is set. A kit that exceeds KitOptions::time_limit fails with
// the names of its ranks and their functions and is the last check. The thread is detached, and stops when
// the kit returns.
HEDDLE_API Report run_watched(const KitOptions& options, const std::function<void()>& kits);

}  // namespace heddle::kits
