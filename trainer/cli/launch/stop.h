// Requests to stop a run: the signals, and the exit statuses of runs and their ranks.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "lib/run/spec/stop_request.h"

namespace heddle::launch {

// Signals that request a save before the stop, and the shared memory of the request. Without signals, every
// signal stops the run at once.
struct Stop {
  std::vector<int> signals = {};
  StopRequest* request = nullptr;
  std::vector<int> preemptions = {};  // the signals that a launcher or a scheduler sends
  // Reports to the other ranks of another launcher that a signal stops this rank before its first step.
  std::function<void(int signal)> tell = {};

  // Returns the status of a run that this signal stopped without loss: 0 for a preemption, 143 for SIGTERM,
  // else 130.
  int status_of(int signal) const;
};

// Returns the worse of two ranks' exit statuses. 2 is worse than 1, because a rank with an invalid request
// makes the others fail. A failure is worse than a requested stop.
int worse(int one, int other);

// Returns the exit status of a rank; an unknown status counts as a failure.
int known(int status);

// Distinguishes a user's second signal from an echo of the first: `timeout` and a terminal may send the same
// signal to a process and to its group.
class Repeats {
 public:
  // Whether this signal comes more than half a second after the first.
  bool is_another();

 private:
  std::chrono::steady_clock::time_point first_{};
};

}  // namespace heddle::launch
