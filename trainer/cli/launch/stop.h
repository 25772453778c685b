// Requests to end a run: the signals, and the exit statuses of runs and their ranks.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "lib/run/spec/stop_request.h"

namespace heddle::launch {

// Signals that request a save and an end, and the shared memory of the request; none: every signal ends the
// run.
struct Stop {
  std::vector<int> signals = {};
  StopRequest* request = nullptr;
  std::vector<int> preemptions = {};  // those of them that a launcher or a scheduler sends
  // Tells the other ranks of another launcher that a signal ends this one before its first step.
  std::function<void(int signal)> tell = {};

  // Of a run that this signal has ended with nothing lost: 0 for a preemption, 143 for SIGTERM, else 130.
  int status_of(int signal) const;
};

// Of two ranks, the exit status that the run ends with. 2 wins over 1, as a rank that found what was asked to
// be wrong makes others fail; a failure wins over a run that was asked to end.
int worse(int one, int other);

// The exit status of a rank; what it may not end with is a failure.
int known(int status);

// Tells a second signal of a person from the echo of one: `timeout` and a terminal may send the same signal
// to a process and to its group.
class Repeats {
 public:
  // Whether this one comes more than half a second after the first.
  bool is_another();

 private:
  std::chrono::steady_clock::time_point first_{};
};

}  // namespace heddle::launch
