// `heddle train`: checks the run, starts its ranks, trains.
#include "trainer/cli/train.h"

#include "heddle/base/error.h"
#include "trainer/cli/configuration.h"
#include "trainer/cli/launch.h"
#include "trainer/cli/ranks.h"
#include "trainer/loop/job.h"

namespace heddle::cli {

int train(const TrainCommand& command) {
  const Node configuration = read_configuration(command.config, command.overrides);
  const RankPlan plan = plan_ranks(command.nproc_per_node);
  PluginRegistry plugins = open_plugins(configuration, Log::to_stderr(plan.rank()));
  const Job job = prepare_job(configuration, plugins, plan.world_size(), command.metrics);
  if (command.json) launch::answer_in_json();
  const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(job.setup.timeout_minutes * 60000));
  return run_ranks(plan, timeout, [&](Rendezvous& meeting) { run_rank(job, plugins, meeting); });
}

}  // namespace heddle::cli
