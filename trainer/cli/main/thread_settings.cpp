// OMP_WAIT_POLICY or GOMP_SPINCOUNT, from the ranks and the threads of this machine.
#include "trainer/cli/main/thread_settings.h"

#include <stdlib.h>

#include <optional>

#include "heddle/transport/rank_place.h"
#include "lib/run/metrics/shared_cores.h"

namespace heddle::cli {

void choose_waiting(const Command& command) {
  const auto* train = std::get_if<TrainCommand>(&command);
  const bool said = ::getenv("OMP_WAIT_POLICY") != nullptr || ::getenv("GOMP_SPINCOUNT") != nullptr;
  if (train == nullptr || said) return;
  const char* threads = ::getenv("OMP_NUM_THREADS");  // without it the ranks share the cores
  const auto place = place_from_environment();
  const int ranks = place ? place->local_world_size : train->nproc_per_node.value_or(1);
  const Waiting waiting = waiting_of(threads == nullptr ? std::nullopt : std::optional(::atoi(threads)),
                                     ranks, threads_per_rank(1));
  ::setenv(waiting.variable, waiting.value, /*overwrite=*/0);
}

}  // namespace heddle::cli
