// The watchdog of a rank: each rank writes heartbeats to the store, watches the next rank, hears its part of
// a tree, and learns of a lost rank.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "heddle/base/error.h"
#include "heddle/base/export.h"
#include "heddle/mesh/rendezvous.h"
#include "lib/transport/launch/process.h"

namespace heddle::mesh {

struct WatchOptions {
  int rank = 0, world_size = 1;
  Process process = {};                                           // this rank's
  std::chrono::milliseconds timeout{};                            // of a collective
  std::function<void(const Error&)> on_lost;                      // see GlooOptions
  std::chrono::milliseconds heartbeat = std::chrono::minutes(1);  // see GlooOptions
  std::function<void(int rank, int signal)> on_stopped = {};      // see GlooOptions
  // Name of the host of a rank, empty if the run has one host. Called from any thread. May be empty.
  std::function<std::string(int rank)> host_name = {};
  // Numeric address of this rank for probes of other hosts. Empty: all ranks are on one host.
  std::string address = {};
};

// Two threads: one uses the store (a heartbeat each half second), the other only reads the clock, so that a
// store that hangs is detected too. A rank is lost when
// - its process has ended, as the process table of this machine says: found within a second;
// - the connection to it broke, and 2 s pass without a heartbeat (a process that cannot be seen from here);
// - its process cannot be seen, and no heartbeat comes for the timeout of a collective;
// - no rank of its host (all ranks with one process table) was heard for WatchOptions::heartbeat.
// A live process is never lost by missing heartbeats: it may be stopped, traced or swapped out. The timeout
// of a collective bounds the wait for it, and the error names its state. A rank tells the states of the
// stopped and traced ranks of its host to ranks of other hosts. Times are running times of this process. The
// first finding is published once, so every rank names the same lost rank.
//
// A rank on another host than rank 0 whose store is silent asks the ranks of rank 0's host over UDP
// (ProbeSocket): the store is also silent if only the process of rank 0 is stopped.
//
// A heartbeat costs a rank one write and one read, with faults and without: up to 64 ranks one asks for each
// other one by name, of more the tree of heartbeats (beat.h) tells which are late. Above 1,024 ranks
// heartbeats are rarer, so that the store serves about 4,000 calls a second at any size.
class HEDDLE_API Watch {
 public:
  // store: a connection of its own, as its calls must not wait behind others.
  Watch(c10::intrusive_ptr<c10d::Store> store, WatchOptions options);
  ~Watch();  // does not wait for a store that hangs
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Learns which process serves the store, so that its state is known when the store is silent, and which
  // ranks run on this host and on rank 0's. To be called after a rendezvous of all ranks.
  void know_server();

  // True once a rank is known to be lost.
  bool lost() const;

  // How long this process has run: pauses do not count (Ctrl-Z, a debugger, a suspended machine). Timeouts
  // are differences of this time, which goes in steps of 50 ms.
  std::chrono::milliseconds running_time() const;

  // Called around every wait for other ranks: a rank that does not wait is late.
  void set_waiting(bool waiting);

  // Who gets a verdict. Other threads than the rank's own leave it to on_lost to end the rank, if its own
  // thread is blocked, for example by a disk.
  enum class Thread { own, beside };

  // The error for a collective that broke or took too long: determines the lost rank, which may take some
  // seconds. absent: the ranks that did not come, if the caller knows them.
  Error verdict(const Broken& broken, Thread thread = Thread::own, std::span<const int> absent = {});

  // Called repeatedly, from another thread, once a rank is lost or running_time() has reached `until`, to
  // release what blocks; until forget() of the same owner.
  void interrupt(const void* owner, std::function<void()> release,
                 std::chrono::milliseconds until = std::chrono::milliseconds::max());
  void forget(const void* owner);

  // Publishes that this rank failed, and why.
  void abandon(const std::string& why);
  // Returns a function that publishes that a signal stopped this rank before its first step. The call takes
  // at most 1 s, from any thread, also when this watch no longer exists.
  std::function<void(int signal)> stop_function() const;
  // Returns a function that publishes that the process of a rank is gone, unless the rank has left or has
  // published a reason: for the store of rank 0, when the connection of the rank is closed. Called as above.
  std::function<void(int rank)> gone_function() const;
  // Publishes that this rank is done, and stops watching. Rank 0 then waits for the others, as it serves the
  // store, for at most the timeout or until one is lost.
  void leave();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the threads, which may outlive the watch
};

}  // namespace heddle::mesh
