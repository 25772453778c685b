// OMP_WAIT_POLICY, from the ranks and the threads of this machine.
#include "trainer/cli/main/thread_settings.h"

#include <stdlib.h>

#include "heddle/transport/rank_place.h"
#include "lib/run/metrics/shared_cores.h"

namespace heddle::cli {

void choose_waiting(const Command& command) {
  const auto* train = std::get_if<TrainCommand>(&command);
  const char* threads = ::getenv("OMP_NUM_THREADS");  // without it the ranks share the cores
  if (train == nullptr || threads == nullptr || ::getenv("GOMP_SPINCOUNT") != nullptr) return;
  const auto place = place_from_environment();
  const int ranks = place ? place->local_world_size : train->nproc_per_node.value_or(1);
  if (share_cores(::atoi(threads), ranks, threads_per_rank(1)))
    ::setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0);
}

}  // namespace heddle::cli
