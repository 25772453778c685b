// Starts the ranks of a run on this machine as processes, and ensures that none is left behind.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "heddle/transport/rank_place.h"
#include "trainer/cli/launch/stop.h"

namespace heddle::launch {

using Body = std::function<int(const RankPlace&)>;  // returns an exit status; may throw Error

// How long the other ranks have to end by themselves once one has failed, and after a signal that ends the
// run; one that asks for a save gives them as long as the disk takes.
struct Patience {
  std::chrono::milliseconds after_failure{4000};
  std::chrono::milliseconds after_signal{5000};
};

// Forks `ranks` processes that run body and end; to be called before any tensor work, as LibTorch's threads
// do not survive a fork. Returns the worst status of the ranks (1 for one that a signal killed, which is said
// on standard error). SIGINT and SIGTERM go on to the ranks and the answer is 1, but for those of `stop`:
// they are noted in the stop request, and the ranks end when they have saved; before their first step they
// are ended at once, with the signal's status. In a rank the signals of `stop` are blocked when its body
// begins. A second signal kills the ranks. When this process dies, the ranks are killed.
int run(int ranks, const Body& body, Patience patience = {}, Stop stop = {});

// Runs body as the rank that another launcher started, and ends the process with its status. An error is
// printed as its block. No static destructor runs: after a broken collective threads of Gloo may still be at
// work.
[[noreturn]] void be_rank(const RankPlace& place, const Body& body);

// Prints the block of an error and ends the process with its status; safe to call from any thread.
[[noreturn]] void end(const std::exception& error);

// The same after a signal in a run of one rank; safe to call from a signal's handler.
[[noreturn]] void end_interrupted();

// From here on the first error that this process or one of its ranks prints goes to standard output as JSON
// too. To be called once, before the ranks start.
void answer_in_json();

}  // namespace heddle::launch
