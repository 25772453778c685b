// Signs of life: each rank writes a beat to the store, looks after its neighbour, and learns of a rank that
// is lost.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "heddle/base/error.h"

namespace heddle::mesh {

struct WatchOptions {
  int rank = 0, world_size = 1;
  bool rank_zero_serves = true;               // the store dies with rank 0
  bool one_machine = false;                   // all ranks share one process table
  std::function<void(const Error&)> on_lost;  // see GlooOptions
};

// Two threads: one talks to the store (a beat each half second), the other judges by the clock alone, so that
// a store that hangs is seen too. The first finding is published once, so every rank names the same lost
// rank. A rank that is killed is found within 4 s (at once on one machine), and everywhere one beat later.
class Watch {
 public:
  // store: a connection of its own, as its calls must not wait behind others.
  Watch(c10::intrusive_ptr<c10d::Store> store, WatchOptions options);
  ~Watch();  // does not wait for a store that hangs
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // True once a rank is known to be lost.
  bool lost() const;

  // To be called around everything that waits for other ranks: a rank that does not wait is late.
  void set_waiting(bool waiting);

  // Who gets a verdict. A thread beside the rank's own leaves it to on_lost to end the rank, should its own
  // thread be busy with something else, a disk that does not answer.
  enum class Thread { own, beside };

  // The error for a collective that broke or (timed_out) took too long: finds out who is to blame, which
  // takes some seconds when it is not known yet. broken: what the transport said.
  Error verdict(const std::string& waited, std::span<const int> members, std::chrono::milliseconds elapsed,
                bool timed_out, const std::string& broken, Thread thread = Thread::own);

  // Called again and again once a rank is lost, to release what blocks; until forget() of the same owner.
  void interrupt(const void* owner, std::function<void()> release);
  void forget(const void* owner);

  // Publishes that this rank failed, and why.
  void abandon(const std::string& why);
  // Publishes that this rank is done, and stops watching. Rank 0 then waits for the others, as it serves the
  // store, for at most `most` or until one is lost.
  void leave(std::chrono::milliseconds most);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the threads, which may outlive the watch
};

}  // namespace heddle::mesh
