// Ranks as real processes in tests: this test program is started again, clean of threads, and forks the
// ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "heddle/mesh/rendezvous.h"
#include "heddle/transport/rank_place.h"

namespace heddle::tests {

// What one rank does between joining and leaving; returns what it says to the test.
using RankBody = std::function<std::string(Rendezvous&)>;

// A body must be known by name before main(): `const Known kBody("name", [](Rendezvous& rendezvous) {...});`
struct Known {
  Known(const std::string& name, RankBody body);
};

// The same without a rendezvous: for the launcher itself. Returns the rank's status.
using PlainBody = std::function<int(const RankPlace&)>;

struct KnownPlain {
  KnownPlain(const std::string& name, PlainBody body);
};

struct RunOutcome {
  int status = -1;  // of the launcher
  std::map<int, std::string>
      said;         // by rank: what its body returned, or "error[...] ..." with which it ended
  std::string err;  // standard error of all
  std::chrono::duration<double> time{};
  bool left_behind = false;  // some process of the run is still there
};

struct RunOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // of a collective
  int signal = 0;  // sent to the launcher once a rank said "ready"
  // Bytes of shared memory for each rank's groups; 0: Gloo.
  size_t shared_memory = std::numeric_limits<size_t>::max();
  int scarce_rank = -1;  // only this rank has that limit; -1: all
  // What the launcher grants the others once one has failed. A busy machine needs more than a user.
  std::chrono::milliseconds patience = std::chrono::seconds(30);
};

RunOutcome run_ranks(const std::string& body, int ranks, RunOptions options = {});

// Every rank said that, and the run ended well.
void expect_all_say(const RunOutcome& run, int ranks, const std::string& text);

// All ranks of the run, for a group of them.
std::vector<int> everyone(const Rendezvous& rendezvous);

// Writes what this rank says before its body ends.
void say(int rank, const std::string& text);

}  // namespace heddle::tests
