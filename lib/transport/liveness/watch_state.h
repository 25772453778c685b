// The shared state of the watchdog's threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "heddle/mesh/call.h"
#include "lib/transport/liveness/beat.h"
#include "lib/transport/liveness/probe_socket.h"
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
constexpr std::chrono::milliseconds kStopGrace{1000};      // at most, for stopped()
constexpr std::chrono::milliseconds kProbeInterval{1000};  // between questions to rank 0's host
constexpr size_t kMostContacts = 8;                        // ranks of rank 0's host that are asked
constexpr size_t kAskedByName = 64;  // that a rank asks for by name; the tree tells of more
constexpr const char* kDied = "died (its process is gone)";

// The first finding, the same text for every rank.
struct HEDDLE_API Loss {
  enum class Kind : char {
    lives = 'l',    // the rank failed or is late, and reads the finding too
    dead = 'd',     // the rank does not read the finding
    host = 'h',     // all ranks of a host are lost
    stopped = 's',  // a signal stopped the rank before its first step; the rank reads the finding too
  };
  int rank = 0;  // the first rank of a lost host
  Kind kind = Kind::dead;
  std::string how;                // stopped: the number of the signal
  std::vector<int> members = {};  // ranks of a lost host

  // "RANK KIND HOW"; of a host "RANK h RANK,RANK, HOW".
  std::string record() const;
  static Loss read(const std::string& record);
  int unreached() const;  // number of ranks that do not read the finding
};

inline std::string beat_key(int rank) {
  return "beat/" + std::to_string(rank);
}

// The known state of another rank.
struct Pulse {
  Beat beat;
  ProcessState process = ProcessState::unseen;
  std::chrono::milliseconds changed{};  // running time at the last new heartbeat
};

struct Watch::State : std::enable_shared_from_this<Watch::State> {
  State(c10::intrusive_ptr<c10d::Store> link, WatchOptions watch_options);

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
  void confirm_closed(int rank);
  void find_hosts_in_doubt();
  std::vector<int> ranks_on(const std::string& table);  // empty: not known
  void note_contact();                                  // with the mutex held

  // The rank's own thread.
  void write_first_beat();
  void publish_stop(int signal);
  void note_closed(int rank);
  void know_server();
  void know_hosts(const Beat& server);

  // The thread that checks for lost ranks.
  void check_loop();
  void check_store();
  void exchange_probes();
  void release_due(bool releases_all);

  // Functions that need the mutex held.
  std::string host(int rank) const { return options.host_name ? options.host_name(rank) : ""; }
  std::string answer_probe(int asker);
  std::optional<Loss> loss_by_silence(int rank) const;
  Loss lost_host(const std::vector<int>& ranks, std::chrono::milliseconds quiet) const;
  std::optional<char> state_told_by_mates(int rank) const;  // T, t: its process is stopped, traced
  std::vector<int> always_watched() const;                  // read in every round
  std::set<std::string> hosts_in_doubt() const;             // tables of watched ranks that are silent
  void learn(Loss found);
  Error error(const std::string& waited) const;
  std::chrono::milliseconds silence_of(const Pulse& pulse) const;
  std::string rank_state_text(int rank) const;  // why a rank did not come; empty: its process runs
  Absent absent(int rank) const;
  std::vector<Absent> late() const;  // ranks seen computing, not waiting
  // Late ranks of this rank's part of the tree, the next rank, and stopped or traced ranks of this host.
  std::vector<LateRank> summary() const;
  std::vector<int> watched() const;  // ranks whose heartbeats are read in this round
  void query_ranks(std::unique_lock<std::mutex>& lock, const Broken& broken);
  void report_lost(std::unique_lock<std::mutex>& lock, const Absent& late, const Broken& broken);
  void serve_until_read(std::unique_lock<std::mutex>& lock);

  const c10::intrusive_ptr<c10d::Store> store;
  const WatchOptions options;
  const int pace;                // how many times rarer heartbeats are
  const std::vector<int> heard;  // this rank's part of the tree
  const std::chrono::milliseconds silence, host_limit;
  const ProbeSocket probe;
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
  std::vector<int> closed;  // ranks whose connection to the store was closed

  bool met = false;                                   // all ranks have met: the lists of hosts are complete
  std::map<std::string, std::vector<int>> hosts;      // by process table; those that were needed so far
  std::vector<std::pair<int, Process>> mates;         // the other ranks of this host, from this rank upwards
  std::vector<std::string> contacts;                  // of ranks of rank 0's host; empty on that host
  std::vector<int> server_members;                    // the ranks of rank 0's host
  std::chrono::milliseconds asked{}, server_heard{};  // running times of the last question and answer
  char server_how = 'c';                              // state of rank 0 in the last answer

  struct Release {
    std::function<void()> call;
    std::chrono::milliseconds until;
  };
  std::mutex releases_mutex;
  std::map<const void*, Release> releases;
};

}  // namespace heddle::mesh
