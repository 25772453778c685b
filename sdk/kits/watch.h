// The time limit of kits: a thread runs them, and its caller gives up a kit that does not end.
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

// Thrown in the thread of kits that were given up, once it runs again. Not a std::exception, so that no kit
// takes it for a fault.
struct GivenUp {};

// Where a rank is, for the watcher.
struct RankState {
  RunningCall call;
  std::atomic<int> waits = 0;       // collectives that it waits in: one, or none
  std::atomic<int64_t> waited = 0;  // how many it has waited in
};

// What the thread of kits and its caller share.
class HEDDLE_API Watch {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Watch(KitOptions options) : options(std::move(options)) {}

  const KitOptions options;
  std::string plugin = {};                         // its name, once it is known
  std::shared_ptr<const CheckDevice> device = {};  // of KitOptions::device; null: the CPU
  std::string the_plugin() const { return plugin.empty() ? "the plugin" : "the plugin '" + plugin + "'"; }

  // A kit begins. Throws GivenUp.
  void begins(const std::string& rule);
  // The kit's result, and how long it took.
  void ended(const Check& check);
  // Why no further kit is worth its time; empty: none.
  std::string exhausted() const;

  // That of this thread; null: nobody watches.
  static Watch* current();

  // One rank of a course, on the thread that runs it.
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
  // The rank of this thread waits for others, as long as this lives.
  class HEDDLE_API Waiting {
   public:
    Waiting();
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
  };
  // How many collectives the rank of this thread has waited in; 0 outside of a course.
  static int64_t waited_of_thread();
  // Half of the limit: how long ranks wait for each other in a collective.
  std::chrono::milliseconds patience() const;

 private:
  friend Report run_watched(const KitOptions& options, const std::function<void()>& kits);
  friend class Rank;
  double limit() const;       // seconds for the kit that runs
  std::string where() const;  // of the ranks that have not ended, those that compute first
  void give_up();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Report report_;
  std::string rule_;  // of the kit that runs; empty: none
  Clock::time_point began_ = Clock::now(), first_ = Clock::now();
  std::map<int, std::shared_ptr<RankState>> ranks_;
  bool done_ = false, given_up_ = false, slow_ = false, failed_ = false;
};

// Runs `kits` in a thread of its own, whose Watch::current() is set. A kit that exceeds
// KitOptions::time_limit is a failure that names the ranks and their functions, and the last check: the
// thread is left to itself, and does nothing more once the kit ends.
HEDDLE_API Report run_watched(const KitOptions& options, const std::function<void()>& kits);

}  // namespace heddle::kits
