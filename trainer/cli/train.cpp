// `heddle train`: checks the run, starts its ranks, trains.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/run/loop/run.h"
#include "lib/run/preflight/preflight.h"
#include "lib/run/spec/run_spec.h"
#include "trainer/cli/configuration.h"
#include "trainer/cli/launch/launch.h"
#include "trainer/cli/launch/messages.h"
#include "trainer/cli/launch/ranks.h"
#include "trainer/cli/launch/stop_signals.h"
#include "trainer/cli/run_commands.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

// Returns the next step of a checkpoint; -1: no checkpoint.
int64_t step_of(const fs::path& checkpoint) {
  std::error_code ignored;
  const fs::path file = checkpoint / kPositionFile;
  return fs::exists(file, ignored) ? read_position(file).step : -1;
}

// Whether the launcher's environment says that it has started this run before: torchrun after a lost worker,
// Slurm after a requeue.
bool was_started_before() {
  for (const char* name : {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"}) {
    const char* count = std::getenv(name);
    if (count != nullptr && std::atoi(count) > 0) return true;
  }
  return false;
}

// Returns the recipe with checkpoint.restore_from set to the latest checkpoint that the run itself has saved.
// A restart must not resume from an older checkpoint that the recipe names, which may be gone, nor from one
// with more steps, which may belong to another run.
Recipe from_what_was_saved(Recipe recipe) {
  CheckpointSection& section = recipe.checkpoint;
  if (!section.enabled || !section.restore_from || *section.restore_from == "LATEST") return recipe;
  const fs::path root = section.directory;
  std::string named = *section.restore_from;
  if (named == "LOWEST_VAL") named = checkpoint::pointed(root / named);
  const std::string latest = checkpoint::pointed(root / "LATEST");
  if (latest.empty() || step_of(root / latest) <= std::max(step_of(root / named), step_of(named)))
    return recipe;
  section.restore_from = latest;
  recipe.configuration = config::with_override(recipe.configuration, "checkpoint.restore_from", latest);
  return recipe;
}

// Returns "restart 1 of 3: all ranks are started again and resume from checkpoints/epoch_0_step_9".
std::string restart_line(int restart, int most, const RunSpec& run) {
  return "restart " + std::to_string(restart) + " of " + std::to_string(most) +
         ": all ranks are started again " +
         (run.resume ? "and resume from " + run.resume->directory.string()
                     : std::string("and start at the first step, because nothing was saved yet"));
}

// Signals take effect from here on.
launch::Stop install_stop(const StepSection& steps, const RankPlan& plan) {
  launch::Stop stop{stop_signals(steps.stop_signals.numbers), &shared_stop_request(),
                    preemptions(steps, plan.is_launched)};
  end_on(stop);
  if (plan.place) {
    stop.tell = [meeting = plan.meeting](int signal) { meeting->stop(signal); };
    listen(stop, SignalRole::rank);
    release_signals(stop.signals);
  }
  return stop;
}

// Checks that the trace file can be written before the run starts. Rank 0 writes it.
void check_trace(const TrainCommand& command) {
  // The file may be in checkpoint_dir, which the run creates later.
  std::error_code failed;
  const std::filesystem::path directory = std::filesystem::path(command.trace).parent_path();
  if (!directory.empty()) std::filesystem::create_directories(directory, failed);
  if (!std::ofstream(command.trace, std::ios::app))
    throw Error(ErrorCode::io, "--trace", "the file " + command.trace + " cannot be written",
                "its directory must exist and be writable");
}

TraceRequest trace_of(const TrainCommand& command) {
  if (command.trace.empty()) return {};
  const int64_t steps = command.trace_first > 0 ? command.trace_last - command.trace_first + 1 : 0;
  return {command.trace, command.trace_first - 1, steps, command.trace_operators};
}

// Adds a hint about the values to lower to an out-of-memory error.
template <class Work>
auto with_memory_hint(const Work& work) {
  try {
    return work();
  } catch (const std::exception& thrown) {
    const auto error = out_of_memory(thrown);
    if (!error) throw;
    throw Error(error->code(), error->where(), error->message(),
                "lower step_scheduler.local_batch_size or dataset.seq_len, set "
                "distributed.activation_checkpointing: full, or split the model over more ranks");
  }
}

// Prepares one start of the run. A restart resumes from the checkpoints that the run has saved.
RunSpec prepare_start(const Recipe& recipe, PluginRegistry& plugins, const RankPlan& plan,
                      const TrainCommand& command, bool is_again) {
  RunOptions options;
  options.metrics = command.metrics;
  options.trace = trace_of(command);
  options.peak_flops = command.peak_flops;
  options.writes_here = plan.rank() == 0;
  options.local_ranks = plan.ranks_here();
  options.preparation = preparation_of(plan.rank() != 0);
  RunSpec run =
      prepare_run(is_again ? from_what_was_saved(recipe) : recipe, plugins, plan.world_size(), options);
  if (options.writes_here && !command.trace.empty()) check_trace(command);
  return run;
}

int train_on(const RankPlan& plan, const TrainCommand& command) {
  // Errors of the recipe are reported together with those of the model and the data.
  const Node file = command.configuration ? *command.configuration : config::read(command.config);
  const Recipe recipe = read_recipe(with_overrides(file, command.overrides), RecipeErrors::kept);
  const launch::Stop stop = install_stop(recipe.steps, plan);
  launch::end_before_messages(stop.request->open_line);  // a message ends an open line of progress
  PluginRegistry plugins = open_plugins(recipe, Log::to_stderr(plan.rank()));
  for (int restart = 0;; ++restart) {
    const RunSpec run = prepare_start(recipe, plugins, plan, command, restart > 0 || was_started_before());
    if (restart > 0) launch::write_message(restart_line(restart, command.max_restarts, run) + "\n");
    if (command.json) launch::answer_in_json();
    const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(run.setup.timeout_minutes * 60000));
    const auto heartbeat =
        std::chrono::milliseconds(static_cast<int64_t>(run.setup.heartbeat_seconds * 1000));
    const auto body = [&](Rendezvous& rendezvous) {
      const int signal = with_memory_hint([&] { return run_rank(run, plugins, rendezvous, *stop.request); });
      return signal == 0 ? 0 : stop.status_of(signal);
    };
    const int status = run_ranks(plan, timeout, body, stop, heartbeat);
    if (status == 130 && stop.request->from_terminal && std::cout.flush()) end_by_interrupt();
    const bool is_lost = status == 1 && stop.request->signal == 0;
    if (!is_lost || restart == command.max_restarts) return status;
    stop.request->stepping = false;
  }
}

}  // namespace

int train(const TrainCommand& command) {
  const RankPlan plan = plan_ranks(command.nproc_per_node, command.max_restarts);
  return run_or_tell_others(plan, [&] { return train_on(plan, command); });
}

}  // namespace heddle::cli
