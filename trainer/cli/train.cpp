// `heddle train`: checks the run, starts its ranks, trains.
#include "trainer/cli/train.h"

#include <iostream>
#include <optional>

#include "heddle/base/error.h"
#include "trainer/cli/configuration.h"
#include "trainer/cli/launch.h"
#include "trainer/cli/ranks.h"
#include "trainer/cli/restarts.h"
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
  const RankPlan plan = plan_ranks(command.nproc_per_node, command.max_restarts);
  const launch::Stop stop = stop_of(configuration, plan);
  PluginRegistry plugins = open_plugins(configuration, Log::to_stderr(plan.rank()));
  for (int restart = 0;; ++restart) {
    const bool again = restart > 0 || was_started_before();
    const Node from = (again ? saved_since(configuration) : std::nullopt).value_or(configuration);
    // Anew for each start: what the run goes on from is found here.
    const Job job = prepare_job(from, plugins, plan.world_size(), command.metrics);
    if (restart > 0) std::cerr << restart_line(restart, command.max_restarts, job) << std::endl;
    if (command.json) launch::answer_in_json();
    const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(job.setup.timeout_minutes * 60000));
    const auto body = [&](Rendezvous& meeting) { run_rank(job, plugins, meeting, *stop.wish); };
    const int status = run_ranks(plan, timeout, body, stop);
    const bool is_lost = status == 1 && stop.wish->signal == 0;
    if (!is_lost || restart == command.max_restarts) return status;
    stop.wish->stepping = false;
  }
}

}  // namespace heddle::cli
