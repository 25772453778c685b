// From the command line and the environment to ranks that have met.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "heddle/base/rank_place.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::cli {

// How the ranks of this run come about.
struct RankPlan {
  std::optional<RankPlace> place;  // a launcher has started this process as one of its ranks
  int local_ranks = 1;             // else: to be started here
  int world_size() const { return place ? place->world_size : local_ranks; }
};

// A launcher's world of several ranks wins over --nproc-per-node. Throws Error{usage}.
RankPlan plan_ranks(std::optional<int> nproc_per_node);

// Runs body once per rank and returns the exit status of the run. Sets the intra-op threads, watches for lost
// ranks, tells the others when body throws, leaves in good order when it returns. timeout: of a collective.
// Under a launcher it does not return: the process ends as its rank.
int run_ranks(const RankPlan& plan, std::chrono::milliseconds timeout,
              const std::function<int(Rendezvous&)>& body);

}  // namespace heddle::cli
