// The shared state of the watchdog's threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "heddle/mesh/call.h"
#include "lib/transport/liveness/beat.h"
#include "lib/transport/liveness/watch.h"

namespace heddle::mesh {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBeat{500}, kQuickBeat{200}, kPollInterval{50};
constexpr int kRanksABeat = 1024;  // above, heartbeats are rarer, so that the store serves as many a second
// Without a heartbeat, if there are other signs of a failure.
constexpr std::chrono::milliseconds kSilence{2000};
// After which a store that does not answer is checked.
constexpr std::chrono::milliseconds kStoreSilence{3000};
constexpr std::chrono::milliseconds kNotice{2000};         // for the rank's own thread to notice a loss
constexpr std::chrono::milliseconds kInquiry{5000};        // at most, for a verdict
constexpr std::chrono::milliseconds kShutdownGrace{1500};  // rank 0 serves the finding this long
constexpr size_t kAskedByName = 64;  // that a rank asks for by name; the tree tells of more
constexpr const char* kDied = "died (its process is gone)";

// The first finding, the same text for every rank.
struct Loss {
  int rank = 0;        // -1: the launcher's store
  bool lives = false;  // it failed or is late, and reads this too
  std::string how;
};

// The known state of another rank.
struct Pulse {
  Beat beat;
  ProcessState process = ProcessState::unseen;
  std::chrono::milliseconds changed{};  // running time at the last new heartbeat
};

struct Watch::State : std::enable_shared_from_this<Watch::State> {
  State(c10::intrusive_ptr<c10d::Store> link, WatchOptions given);

  // The thread that writes and reads heartbeats. A round without a fault: one write, and one read of several
  // keys.
  void heartbeat_loop();
  void heartbeat_until_stopped();
  void exchange_news();
  bool read_news(std::vector<int> ranks);  // false: a rank is lost
  void learn_record(const std::string& record);
  void hear(int rank, const Beat& beat);
  void look_at_processes();  // between two rounds, without the store
  void publish(const Loss& found);
  bool pass_over_left();
  void confirm_end(int rank);

  // The rank's own thread.
  void write_first_beat();
  void know_server();

  // The thread that checks for lost ranks.
  void check_loop();
  void check_store();
  void release_due(bool all);

  // With the mutex held.
  void learn(Loss found);
  Error error(const std::string& waited) const;
  bool store_is_rank_zero() const { return options.rank_zero_serves && options.rank != 0; }
  bool is_lost_by_silence(const Pulse& pulse) const;
  std::chrono::milliseconds silence_of(const Pulse& pulse) const;
  std::string rank_state_text(int rank) const;  // why a rank did not come; empty: its process runs
  std::vector<Absent> late() const;             // ranks seen computing, not waiting
  std::vector<LateRank> summary() const;        // of this rank's part of the tree, and of the next rank
  std::vector<int> watched() const;             // ranks whose heartbeats are read in this round
  void query_ranks(std::unique_lock<std::mutex>& lock, const Broken& broken);
  void report_lost(std::unique_lock<std::mutex>& lock, const Absent& late, const Broken& broken);
  void serve_until_read(std::unique_lock<std::mutex>& lock);

  const c10::intrusive_ptr<c10d::Store> store;
  const WatchOptions options;
  const int pace;                // how many times rarer heartbeats are
  const std::vector<int> heard;  // this rank's part of the tree
  const std::chrono::milliseconds silence;
  std::atomic<bool> waiting{false}, is_lost{false};
  std::atomic<std::chrono::milliseconds> ran{};

  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false, talking = true, judging = true;
  std::optional<Loss> loss;
  Clock::time_point loss_time;
  std::chrono::milliseconds last_contact{};  // running time
  bool claimed = false;                      // the rank's own thread, or on_lost, has the error
  std::optional<Loss> to_publish;
  std::vector<int> suspects;  // read with every heartbeat, besides the next rank and the tree
  bool broken = false;        // a connection broke, here or at another rank
  bool told_broken = false;
  std::map<int, Pulse> pulses;  // of ranks whose heartbeat was read
  int next = 0;                 // the ring: the next rank that has not left
  int64_t beats = 0, seen = 0;  // seen: how many ranks know of the loss
  bool told_seen = false;

  struct Release {
    std::function<void()> call;
    std::chrono::milliseconds until;
  };
  std::mutex releases_mutex;
  std::map<const void*, Release> releases;
};

}  // namespace heddle::mesh
