// From what preflight() has checked to a run: the checkpoint that it resumes from, what a rank holds.
#include "lib/run/preflight/prepare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <system_error>

#include "heddle/checkpoint/sharded.h"
#include "lib/run/checkpointing/conflicts.h"
#include "lib/run/checkpointing/disk_space.h"
#include "lib/run/checkpointing/resume.h"
#include "lib/run/checkpointing/run_lock.h"
#include "lib/run/preflight/rank_size.h"
#include "lib/run/preflight/run_outputs.h"
#include "lib/run/spec/settings.h"

namespace heddle {
namespace {

void warn_of_no_best(RunSpec& run) {
  if (run.recipe.checkpoint.best_set || run.validation.empty()) return;
  run.setup.warnings.push_back(
      "LOWEST_VAL is not kept: none of the validation sets is the default; set checkpoint.best_metric_key");
}

// The last export may have failed, and no step is left that would bring the next.
void warn_of_no_export(RunSpec& run) {
  const bool done = run.resume && run.resume->position.step >= run.scheduler.total_steps();
  if (!done || run.recipe.checkpoint.save_consolidated == CheckpointSection::Export::never) return;
  std::error_code ignored;
  if (std::filesystem::exists(run.resume->directory / "model" / "consolidated", ignored)) return;
  run.setup.warnings.push_back(run.resume->directory.string() +
                               " has no model for transformers: heddle convert " +
                               run.resume->directory.string() + " MODEL makes it");
}

std::string rate_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

// A longer run stretches its schedule, and a changed optimizer.lr moves it: the next step may jump.
void warn_of_another_rate(RunSpec& run) {
  if (!run.resume || !run.resume->position.next_lr) return;
  const Position& position = run.resume->position;
  const int64_t total = run.scheduler.total_steps();
  const double was = *position.next_lr, now = run.rates.lr(position.step);
  if (position.step >= total || std::abs(now - was) <= 1e-9 * std::max(std::abs(now), std::abs(was))) return;
  const bool longer = run.recipe.lr_schedule && position.total_steps && *position.total_steps != total;
  run.setup.warnings.push_back("the learning rate of step " + std::to_string(position.step + 1) +
                               " was to be " + rate_text(was) + " in the run that saved " +
                               run.resume->directory.filename().string() + ", and is " + rate_text(now) +
                               " now" +
                               (longer ? ": that run had " + std::to_string(*position.total_steps) +
                                             " steps, this one has " + std::to_string(total)
                                       : ""));
}

// The checkpoint that the run resumes from, where there is one.
void find_beginning(RunSpec& run, std::chrono::milliseconds patience) {
  if (run.recipe.checkpoint.enabled) refuse_where_a_run_saves(run.recipe.checkpoint.directory, patience);
  run.latest = checkpoint::pointed(std::filesystem::path(run.recipe.checkpoint.directory) / "LATEST");
  run.resume = find_checkpoint(run, run.setup.warnings);
  warn_of_no_export(run);
  warn_of_another_rate(run);
  check_checkpoint_conflicts(run);
  if (const std::string space = disk_space_warning(run); !space.empty()) run.setup.warnings.push_back(space);
  if (run.resume) run.scheduler.go_on_from(run.resume->position.step);
}

}  // namespace

RunSpec spec_of(Preflight checked, const NamedOutputs& named, std::chrono::milliseconds patience) {
  const std::filesystem::path file =
      named.metrics.empty() ? default_metrics(checked.recipe.checkpoint) : named.metrics;
  RunSpec run{std::move(checked.recipe),
              std::move(checked.setup),
              std::move(checked.pipeline),
              std::move(*checked.model),
              std::move(*checked.dataset),
              std::move(checked.validation),
              std::move(*checked.scheduler),
              *checked.rates,
              file};
  run.saved = checked.saved;
  run.samples_tokenizer = std::move(checked.samples_tokenizer);
  warn_of_no_best(run);
  run.content = content_of(run);
  run.settings = settings_of(run);
  if (run.recipe.checkpoint.enabled) run.bases = identities_of(run.model);
  if (named.are_written_here) refuse_outputs(run, named);
  find_beginning(run, patience);
  if (run.setup.sizes.world > 1) run.files = files_of(run);
  return run;
}

RunSpec prepare_run(Recipe recipe, PluginRegistry& plugins, int world_size, const NamedOutputs& named,
                    int local_ranks) {
  Preflight checked = preflight(std::move(recipe), plugins, world_size, Machine::this_one);
  const bool on_cpu = checked.plan.device == nullptr;
  RunSpec run = spec_of(std::move(checked), named);
  const std::optional<RankSizes> sizes = sizes_if_known(run.setup, run.model, run.recipe, plugins);
  if (!sizes) return run;
  run.size = sizes->most;
  if (on_cpu) check_memory(*sizes, run.recipe.model, local_ranks);
  return run;
}

}  // namespace heddle
