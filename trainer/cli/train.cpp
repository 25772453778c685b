// `heddle train`: checks the run, starts its ranks, trains.
#include "trainer/cli/train.h"

#include "heddle/base/error.h"
#include "trainer/cli/configuration.h"
#include "trainer/cli/launch.h"
#include "trainer/cli/ranks.h"
#include "trainer/cli/stop_signals.h"
#include "trainer/loop/job.h"

namespace heddle::cli {

namespace {

// Signals count from here on; a rank of another launcher only remembers them, as the others wait for it.
launch::Stop stop_of(const Node& configuration, const RankPlan& plan) {
  launch::Stop stop{stop_signals(read_recipe(configuration).steps.stop_signals), &shared_wish()};
  if (plan.place) {
    listen(stop, Taker::rank);
  } else {
    end_on(stop.signals);
  }
  return stop;
}

}  // namespace

int train(const TrainCommand& command) {
  const Node configuration = read_configuration(command.config, command.overrides);
  const RankPlan plan = plan_ranks(command.nproc_per_node);
  const launch::Stop stop = stop_of(configuration, plan);
  PluginRegistry plugins = open_plugins(configuration, Log::to_stderr(plan.rank()));
  const Job job = prepare_job(configuration, plugins, plan.world_size(), command.metrics);
  if (command.json) launch::answer_in_json();
  const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(job.setup.timeout_minutes * 60000));
  const auto body = [&](Rendezvous& meeting) { run_rank(job, plugins, meeting, *stop.wish); };
  return run_ranks(plan, timeout, body, stop);
}

}  // namespace heddle::cli
