// What the threads of a watch share.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "heddle/mesh/watch.h"

namespace heddle::mesh {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBeat{500}, kQuickBeat{200}, kGlance{50};
constexpr std::chrono::milliseconds kSilence{3000};         // without a new beat: lost
constexpr std::chrono::milliseconds kSuspectSilence{2000};  // the same, when a collective broke as well
constexpr std::chrono::milliseconds kStoreSilence{3000};    // a store that does not answer
constexpr std::chrono::milliseconds kNotice{2000};          // for the rank's own thread to see a loss
constexpr std::chrono::milliseconds kInquiry{5000};         // at most, for a verdict
constexpr std::chrono::milliseconds kLinger{1500};          // rank 0 serves the finding this long

// The first finding, the same text for every rank.
struct Loss {
  int rank = 0;        // -1: the launcher's store
  bool lives = false;  // it failed, or is late, and reads this too
  std::string how;
};

// What is known of another rank from its beats.
struct Pulse {
  int64_t count = -1;
  char state = '?';  // w: waits for others, c: computes, l: has left
  int pid = 0;
  Clock::time_point changed;
};

struct Watch::State : std::enable_shared_from_this<Watch::State> {
  State(c10::intrusive_ptr<c10d::Store> link, WatchOptions given)
      : store(std::move(link)), options(std::move(given)) {}

  // The talking thread.
  void talk();
  void exchange_news();
  void look_for_loss();
  void look_at(int rank);
  void publish(const Loss& found);
  bool is_dead(const Pulse& pulse, Clock::time_point now) const;

  // The judging thread.
  void judge();
  void release_all();

  // With the mutex held.
  void learn(Loss found);
  Error error(const std::string& waited) const;
  std::vector<int> late() const;  // ranks that were seen not to wait
  void linger(std::unique_lock<std::mutex>& lock);

  const c10::intrusive_ptr<c10d::Store> store;
  const WatchOptions options;
  std::atomic<bool> waiting{false}, is_lost{false};

  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false, talking = true, judging = true;
  std::optional<Loss> loss;
  Clock::time_point loss_time, last_contact = Clock::now();
  bool claimed = false;  // the rank's own thread, or on_lost, has the error
  std::optional<Loss> to_publish;
  std::vector<int> suspects;  // looked at with every beat, besides the neighbour
  std::map<int, Pulse> pulses;
  int64_t beats = 0, seen = 0;  // seen: how many ranks know of the loss
  bool told_seen = false;

  std::mutex releases_mutex;
  std::map<const void*, std::function<void()>> releases;
};

}  // namespace heddle::mesh
