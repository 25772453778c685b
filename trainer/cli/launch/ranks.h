// From the command line and the environment to ranks that have met.
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

// How the ranks of this run come about.
struct RankPlan {
  std::optional<RankPlace> place;  // a launcher has started this process as one of several ranks
  int local_ranks = 1;             // else: to be started here
  bool restarts = false;           // of ranks that are lost: one rank too is a process of its own
  bool is_launched = false;        // torchrun, MPI or Slurm has started this program, be it with one rank
  std::shared_ptr<mesh::Meeting> meeting;  // with `place`: begins when the plan is made
  int world_size() const { return place ? place->world_size : local_ranks; }
  int ranks_here() const { return place ? place->local_world_size : local_ranks; }  // on this machine
  int rank() const { return place ? place->rank : 0; }
};

// Throws Error{usage}: a count below 1, a count or restarts under a launcher that has started several ranks,
// half an environment. Ranks of a launcher begin to meet here.
RankPlan plan_ranks(std::optional<int> nproc_per_node, int max_restarts = 0);

// Returns work(). An error that it throws is sent to the other ranks first: otherwise they would wait for
// this rank.
int tell_others(const RankPlan& plan, const std::function<int()>& work);

// Runs body once per rank, which returns its exit status, and returns that of the run. Sets the intra-op
// threads, watches for lost ranks, tells the others when body throws, leaves in good order when it returns.
// timeout: of a collective; heartbeat: see GlooOptions. Under a launcher of several ranks it does not return:
// the process ends as its rank, and has to listen to these signals already.
int run_ranks(const RankPlan& plan, std::chrono::milliseconds timeout,
              const std::function<int(Rendezvous&)>& body, const launch::Stop& stop = {},
              std::chrono::milliseconds heartbeat = std::chrono::minutes(1));

}  // namespace heddle::cli
