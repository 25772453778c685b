// Starts the ranks of a run on this machine as processes, and ensures that none survives the run.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "heddle/transport/rank_place.h"
#include "trainer/cli/launch/stop.h"

namespace heddle::launch {

using Body = std::function<int(const RankPlace&)>;  // returns an exit status; may throw Error

// Time that the other ranks have to exit by themselves after a rank failed and after a signal that stops the
// run. A signal that requests a save gives them as long as the save takes.
struct Patience {
  std::chrono::milliseconds after_failure{4000};
  std::chrono::milliseconds after_signal{5000};
};

// Forks `ranks` processes that run body and exit. Must be called before any tensor work, because LibTorch's
// threads do not survive a fork. Returns the worst status of the ranks (1 for a rank killed by a signal,
// which is reported on standard error). SIGINT and SIGTERM are forwarded to the ranks and give status 1,
// except the signals of `stop`: these are stored in the stop request and the ranks exit after saving; before
// their first step, the ranks are stopped at once with the signal's status. The signals of `stop` are blocked
// in a rank when its body begins. A second signal kills the ranks. If this process dies, the ranks are
// killed.
int run(int ranks, const Body& body, Patience patience = {}, Stop stop = {});

// Runs body as a rank of another launcher, and exits the process with its status. Prints an error as its
// block. Runs no static destructors, because Gloo's threads may still be running after a broken collective.
[[noreturn]] void be_rank(const RankPlace& place, const Body& body);

// Prints the block of an error and exits the process with its status. Thread-safe.
[[noreturn]] void end(const std::exception& error);

// Exits after a signal in a run of one rank. Async-signal-safe.
[[noreturn]] void end_interrupted();

// Makes the first error that this process or one of its ranks prints go to standard output too, as JSON. Must
// be called once, before the ranks start.
void answer_in_json();

}  // namespace heddle::launch
