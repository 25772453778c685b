// Sets OMP_WAIT_POLICY or GOMP_SPINCOUNT from the ranks and threads of this machine.
#include "trainer/cli/main/thread_settings.h"

#include <stdlib.h>

#include <optional>

#include "heddle/base/error.h"
#include "heddle/transport/rank_place.h"
#include "lib/cost/shared_cores.h"

namespace heddle::cli {

namespace {

// Returns the ranks on this machine. An invalid environment is reported later, when the other ranks can be
// informed.
int ranks_here(const TrainCommand& train) {
  try {
    if (const auto place = place_from_environment()) return place->local_world_size;
  } catch (const Error&) {
    return 1;
  }
  return train.nproc_per_node.value_or(1);
}

}  // namespace

void choose_waiting(const Command& command) {
  const auto* train = std::get_if<TrainCommand>(&command);
  const bool said = ::getenv("OMP_WAIT_POLICY") != nullptr || ::getenv("GOMP_SPINCOUNT") != nullptr;
  if (train == nullptr || said) return;
  const char* threads = ::getenv("OMP_NUM_THREADS");  // without it, ranks share the cores
  const int ranks = ranks_here(*train);
  const Waiting waiting = waiting_of(threads == nullptr ? std::nullopt : std::optional(::atoi(threads)),
                                     ranks, threads_per_rank(1));
  ::setenv(waiting.variable, waiting.value, /*overwrite=*/0);
}

}  // namespace heddle::cli
