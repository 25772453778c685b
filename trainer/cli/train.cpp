// `heddle train`: checks the run, starts its ranks, trains.
#include "trainer/cli/train.h"

#include <ATen/Parallel.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/base/rank_place.h"
#include "heddle/mesh/gloo.h"
#include "trainer/cli/configuration.h"
#include "trainer/cli/launch.h"
#include "trainer/loop/job.h"

namespace heddle::cli {
namespace {

// OMP_NUM_THREADS wins; else the ranks of a machine share its cores.
void share_cores(int local_world_size) {
  if (std::getenv("OMP_NUM_THREADS") == nullptr) at::set_num_threads(threads_per_rank(local_world_size));
}

// A run in this process ends with status 1 on Ctrl-C, as one with many ranks does.
void end_on_signals() {
  for (const int number : {SIGINT, SIGTERM})
    ::signal(number, [](int) {
      constexpr std::string_view text = "error[rank_lost] launch: interrupted by a signal\n";
      [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
      ::_exit(1);
    });
}

int run_place(const Job& job, PluginRegistry& plugins, const RankPlace& place) {
  share_cores(place.local_world_size);
  GlooOptions options;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(job.setup.timeout_minutes * 60000));
  options.log = Log::to_stderr(place.rank);
  options.on_lost = [](const Error& error) { launch::end(error); };
  const std::unique_ptr<Rendezvous> meeting = mesh::join(place, options);
  try {
    run_rank(job, plugins, *meeting);
    meeting->leave();
    return 0;
  } catch (const std::exception& error) {
    meeting->abandon(error.what());
    const auto* own = dynamic_cast<const Error*>(&error);
    // Rank 0 alone writes files: it prints what stood in the way, once.
    if (own != nullptr && own->code() == ErrorCode::io && place.rank != 0) return exit_status(own->code());
    throw;
  }
}

}  // namespace

int train(const TrainCommand& command) {
  const Node configuration = read_configuration(command.config, command.overrides);
  const std::optional<RankPlace> given = place_from_environment();
  if (given && command.nproc_per_node && given->world_size > 1)
    throw Error(ErrorCode::usage, "heddle train",
                "--nproc-per-node is given, but " + given->launcher + " has already started " +
                    std::to_string(given->world_size) + " ranks",
                "leave --nproc-per-node out under a launcher");
  const int world_size = given ? given->world_size : command.nproc_per_node.value_or(1);
  PluginRegistry plugins = open_plugins(configuration, Log::to_stderr(given ? given->rank : 0));
  const Job job = prepare_job(configuration, plugins, world_size, command.metrics);
  const launch::Body body = [&](const RankPlace& place) { return run_place(job, plugins, place); };
  if (given) launch::be_rank(*given, body);
  if (world_size > 1) return launch::run(world_size, body);
  end_on_signals();
  return run_place(job, plugins, RankPlace{});
}

}  // namespace heddle::cli
