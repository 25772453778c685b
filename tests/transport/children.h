// Ranks as real processes: the test program is started again, without threads, and forks the
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

// Body of a rank between joining and leaving. Returns the text that the rank reports to the test.
using RankBody = std::function<std::string(Rendezvous&)>;

// Registers a body by name before main(): `const Known kBody("name", [](Rendezvous& rendezvous) {...});`
struct Known {
  Known(const std::string& name, RankBody body);
};

// Body without a rendezvous, for tests of the launcher. Returns the rank's status.
using PlainBody = std::function<int(const RankPlace&)>;

struct KnownPlain {
  KnownPlain(const std::string& name, PlainBody body);
};

struct RunOutcome {
  int status = -1;  // status of the launcher
  std::map<int, std::string>
      said;         // by rank: the text that its body returned, or "error[...] ..." if the body threw
  std::string err;  // standard error of all ranks
  std::chrono::duration<double> time{};
  bool left_behind = false;  // whether a process of the run still exists
};

struct RunOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // timeout of collectives
  int signal = 0;  // sent to the launcher once a rank has said "ready"
  // Shared memory in bytes per rank for its groups. 0: use Gloo.
  size_t shared_memory = std::numeric_limits<size_t>::max();
  int scarce_rank = -1;  // rank with the limit; -1: all
  // Grace period of the launcher after a failure, longer than the default for busy machines.
  std::chrono::milliseconds patience = std::chrono::seconds(30);
};

RunOutcome run_ranks(const std::string& body, int ranks, RunOptions options = {});

// Checks that every rank reported `text` and that the run succeeded.
void expect_all_say(const RunOutcome& run, int ranks, const std::string& text);

// Returns all ranks of the run.
std::vector<int> everyone(const Rendezvous& rendezvous);

// Reports a text of this rank before its body returns.
void say(int rank, const std::string& text);

}  // namespace heddle::tests
