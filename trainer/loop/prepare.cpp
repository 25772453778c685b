// From a look at a run to its job: where it goes on from.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <system_error>

#include "heddle/checkpoint/sharded.h"
#include "trainer/data/token_check.h"
#include "trainer/loop/job.h"
#include "trainer/loop/rank_size.h"
#include "trainer/loop/settings.h"
#include "trainer/metrics/look.h"
#include "trainer/outputs/run_outputs.h"
#include "trainer/saves/in_the_way.h"
#include "trainer/saves/resume.h"
#include "trainer/saves/run_lock.h"
#include "trainer/saves/space.h"

namespace heddle {
namespace {

void warn_of_no_best(Job& job) {
  if (job.recipe.checkpoint.best_set || job.validation.empty()) return;
  job.setup.warnings.push_back(
      "LOWEST_VAL is not kept: none of the validation sets is the default; set checkpoint.best_metric_key");
}

// The last export may have failed, and no step is left that would bring the next.
void warn_of_no_export(Job& job) {
  const bool done = job.resume && job.resume->position.step >= job.scheduler.total_steps();
  if (!done || job.recipe.checkpoint.save_consolidated == CheckpointSection::Export::never) return;
  std::error_code ignored;
  if (std::filesystem::exists(job.resume->directory / "model" / "consolidated", ignored)) return;
  job.setup.warnings.push_back(job.resume->directory.string() +
                               " has no model for transformers: heddle convert " +
                               job.resume->directory.string() + " MODEL makes it");
}

std::string rate_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

// A longer run stretches its schedule, and a changed optimizer.lr moves it: the next step may jump.
void warn_of_another_rate(Job& job) {
  if (!job.resume || !job.resume->position.next_lr) return;
  const Position& position = job.resume->position;
  const int64_t total = job.scheduler.total_steps();
  const double was = *position.next_lr, now = job.rates.lr(position.step);
  if (position.step >= total || std::abs(now - was) <= 1e-9 * std::max(std::abs(now), std::abs(was))) return;
  const bool longer = job.recipe.lr_schedule && position.total_steps && *position.total_steps != total;
  job.setup.warnings.push_back("the learning rate of step " + std::to_string(position.step + 1) +
                               " was to be " + rate_text(was) + " in the run that saved " +
                               job.resume->directory.filename().string() + ", and is " + rate_text(now) +
                               " now" +
                               (longer ? ": that run had " + std::to_string(*position.total_steps) +
                                             " steps, this one has " + std::to_string(total)
                                       : ""));
}

// The checkpoint that the run goes on from, where there is one.
void find_beginning(Job& job, std::chrono::milliseconds patience) {
  if (job.recipe.checkpoint.enabled) refuse_where_a_run_saves(job.recipe.checkpoint.directory, patience);
  job.latest = checkpoint::pointed(std::filesystem::path(job.recipe.checkpoint.directory) / "LATEST");
  job.resume = find_checkpoint(job, job.setup.warnings);
  warn_of_no_export(job);
  warn_of_another_rate(job);
  refuse_what_is_in_the_way(job);
  if (const std::string space = want_of_space(job); !space.empty()) job.setup.warnings.push_back(space);
  if (job.resume) job.scheduler.go_on_from(job.resume->position.step);
}

}  // namespace

Job begin(const Node& configuration, Look look, const NamedOutputs& named,
          std::chrono::milliseconds patience) {
  const std::filesystem::path file =
      named.metrics.empty() ? default_metrics(look.recipe.checkpoint) : named.metrics;
  Job job{configuration,
          std::move(look.recipe),
          std::move(look.setup),
          std::move(look.pipeline),
          std::move(*look.model),
          std::move(*look.dataset),
          std::move(look.validation),
          std::move(*look.scheduler),
          *look.rates,
          file};
  warn_of_no_best(job);
  job.content = content_of(job);
  job.settings = settings_of(job);
  refuse_outputs(job, named);
  find_beginning(job, patience);
  return job;
}

std::filesystem::path default_metrics(const CheckpointSection& section) {
  return std::filesystem::path(section.directory) / "training.jsonl";
}

std::string fingerprint(const Job& job) {
  std::string lines;
  const Node others = job.configuration.without("plugins").without("distributed");
  for (const auto& [key, value] : others.entries()) lines += key + ": " + config::to_json(value) + "\n";
  const auto add_lengths = [&lines](const std::string& section, const TokenDataset& dataset) {
    if (const SampleRows* samples = dataset.samples())
      lines += "lengths of samples of " + section + ": checksum " + samples->lengths_sum + "\n";
  };
  add_lengths("dataset", job.dataset);
  for (const ValidationSet& set : job.validation)
    add_lengths("validation_dataset" + (set.name.empty() ? "" : "_" + set.name), set.dataset);
  for (const auto& [what, digest] : job.content) lines += what + ": " + digest + "\n";
  if (job.resume) lines += "resume: " + job.resume->directory.filename().string() + "\n";
  if (!job.trace.file.empty())
    lines += "--trace: " + std::to_string(job.trace.first_step + 1) + ", " + std::to_string(job.trace.steps) +
             " steps\n";
  return lines;
}

void check_tokens(const Job& job) {
  std::vector<const TokenDataset*> datasets{&job.dataset};
  for (const ValidationSet& set : job.validation) datasets.push_back(&set.dataset);
  const CheckpointSection& section = job.recipe.checkpoint;
  const std::filesystem::path notes =
      section.enabled ? std::filesystem::path(section.directory) / kTokenNotes : "";
  check_tokens(datasets, job.model.spec->facts().vocabulary, notes);
}

Job prepare_job(const Node& configuration, PluginRegistry& plugins, int world_size, const NamedOutputs& named,
                int local_ranks) {
  Look look = look_at(configuration, plugins, world_size, Machine::this_one);
  const Plan plan = std::move(look.plan);
  Job job = begin(configuration, std::move(look), named);
  const std::optional<RankSizes> sizes = sizes_if_known(plan, job.setup, job.model, job.recipe);
  if (!sizes) return job;
  job.size = sizes->most;
  if (plan.device == nullptr) check_memory(*sizes, job.recipe.model, local_ranks);
  return job;
}

}  // namespace heddle
