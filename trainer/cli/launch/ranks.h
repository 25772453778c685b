// Starts or joins the ranks of a run, from the command line and the environment.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "heddle/mesh/rendezvous.h"
#include "heddle/transport/rank_place.h"
#include "lib/transport/meeting/meeting.h"
#include "trainer/cli/launch/launch.h"

namespace heddle::cli {

// How the ranks of this run are started.
struct RankPlan {
  std::optional<RankPlace> place;  // set if a launcher started this process as one of several ranks
  int local_ranks = 1;             // else: number of ranks to start here
  bool restarts = false;           // restart lost ranks, so a single rank is a process of its own too
  bool is_launched = false;        // torchrun, MPI or Slurm started this program, possibly with one rank
  std::shared_ptr<mesh::Meeting> meeting;  // set with `place`; starts when the plan is made
  int world_size() const { return place ? place->world_size : local_ranks; }
  int ranks_here() const { return place ? place->local_world_size : local_ranks; }  // on this machine
  int rank() const { return place ? place->rank : 0; }
};

// Throws Error{usage} for a count below 1, for a count or restarts under a launcher that has started several
// ranks, and for an incomplete environment. Ranks of a launcher start to connect here.
RankPlan plan_ranks(std::optional<int> nproc_per_node, int max_restarts = 0);

// Returns work(). Sends an error that it throws to the other ranks first, which would otherwise wait for this
// rank.
int run_or_tell_others(const RankPlan& plan, const std::function<int()>& work);

// Runs body once per rank and returns the exit status of the run. Sets the number of intra-op threads,
// detects lost ranks, reports an exception of body to the other ranks, and shuts down in order when body
// returns. timeout: of a collective; heartbeat: see GlooOptions. Under a launcher of several ranks it does
// not return: the process exits as its rank, and must already listen to the signals of `stop`.
int run_ranks(const RankPlan& plan, std::chrono::milliseconds timeout,
              const std::function<int(Rendezvous&)>& body, const launch::Stop& stop = {},
              std::chrono::milliseconds heartbeat = std::chrono::minutes(1));

}  // namespace heddle::cli
