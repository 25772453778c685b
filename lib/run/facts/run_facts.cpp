// Values of a run for its header, its journal and its cost estimate.
#include "lib/run/facts/run_facts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "heddle/plugin/metrics.h"
#include "lib/run/checkpointing/resume.h"
#include "lib/run/checkpointing/save.h"
#include "lib/run/recipe/signals.h"
#include "lib/run/recipe/skipped_keys.h"

namespace heddle {
namespace {

std::string data_text(const RunSpec& run) {
  const Rows& rows = run.dataset;
  const std::string size = std::to_string(rows.size()), tokens = std::to_string(rows.length());
  std::string out = size + " samples of " + tokens + " tokens";
  if (const Packing* packing = rows.packing())
    out = size + " packs of " + tokens + " tokens from " +
          std::to_string(rows.used_samples() - packing->left_out) + " samples";
  else if (rows.is_uneven())
    out = size + " samples of at most " + std::to_string(rows.longest()) + " tokens in rows " +
          (rows.is_ragged() ? "as long as the longest of their microbatch" : "of " + tokens);
  return out + ", " +
         (run.shuffle != Shuffle::off   ? "shuffled with seed " + std::to_string(run.recipe.seed)
          : rows.samples().sequential() ? std::string("in the data set's own order")
                                        : std::string("in the order of the files"));
}

RunHeader::Overrides overrides_of(const RunSpec& run) {
  const ConfigOverrides& given = run.recipe.model.overrides;
  RunHeader::Overrides out;
  if (given.empty()) return out;
  out.are_exported = given.exported;
  for (const auto& [key, value] : given.keys.entries())
    if (!run.model.idle_keys.contains(key)) out.keys.emplace_back(key, config::to_json(value));
  return out;
}

RunHeader::Exports exports_of(const RunSpec& run, const StepInfo& last) {
  if (run.exports == CheckpointSection::Export::every) return RunHeader::Exports::every;
  return saves_model(run, last) ? RunHeader::Exports::final : RunHeader::Exports::never;
}

std::vector<SinkSection> sinks_of(const std::vector<PluginSection>& sections) {
  std::vector<SinkSection> out;
  for (const PluginSection& section : sections)
    if (section.kind == OfferedMetrics::kKind)
      out.push_back({section.name, static_cast<const OfferedMetrics*>(section.offered), section.values});
  return out;
}

MetricsRun told_to_sinks(const RunSpec& run) {
  MetricsRun out;
  out.directory = run.recipe.checkpoint.directory;
  out.done_steps = run.resume ? run.resume->position.step : 0;
  out.total_steps = run.scheduler.total_steps();
  out.facts = {{"strategy", run.setup.strategy},
               {"world_size", std::to_string(run.setup.sizes.world)},
               {"model_type", run.model.spec->facts().model_type},
               {"dtype", run.model.dtype == at::kFloat ? "float32" : "bfloat16"},
               {"seed", std::to_string(run.recipe.seed)},
               {"global_batch_size", std::to_string(run.recipe.steps.global_batch_size)}};
  out.configuration = config::to_yaml(run.recipe.configuration);
  return out;
}

}  // namespace

RunHeader header_of(const RunSpec& run) {
  const StepSection& steps = run.recipe.steps;
  const CheckpointSection& saves = run.recipe.checkpoint;
  RunHeader out;
  out.setup = run.setup;
  out.model_type = run.model.spec->facts().model_type;
  out.stored = run.model.dtype;
  out.products = product_dtype(run.setup, run.model.dtype);
  out.directory = run.model.directory;
  out.dequantized = run.model.dequantized;
  out.overrides = overrides_of(run);
  out.routers = run.model.routing;
  for (size_t i = 0; i < run.model.changes.size(); ++i)
    out.transforms.push_back(
        {run.model.transforms[i].name, run.model.changes[i].note, !run.model.changes[i].frozen.empty()});
  out.data = data_text(run);
  out.batch = {steps.global_batch_size, steps.local_batch_size, run.dataset.length(),
               run.dataset.is_ragged()};
  out.pipeline = run.pipeline;
  out.steps = {run.scheduler.total_steps(), run.scheduler.steps_per_epoch(), steps.max_steps,
               steps.num_epochs};
  out.skipped = text_of(run.recipe.skipped, false);
  if (run.recipe.benchmark) {
    out.saves = RunHeader::Saves::benchmark;
  } else if (saves.enabled) {
    const StepInfo last = run.scheduler.last();
    out.saves =
        run.scheduler.saves_before_the_end() ? RunHeader::Saves::on_the_way : RunHeader::Saves::at_the_end;
    out.exports = exports_of(run, last);
    out.last_checkpoint = directory_of(run, last);
  }
  if (run.resume) {
    out.resumes = run.resume->directory;
    out.done_steps = run.resume->position.step;
  }
  return out;
}

std::string stopped_text(const RunSpec& run, int signal, const std::optional<StepInfo>& info) {
  const std::string by = "stopped by " + signal_name(signal);
  if (!info)
    return by + " before the first step: there is nothing to save; run the same command to start again";
  const std::string at = by + " after step " + std::to_string(info->step + 1) + " of " +
                         std::to_string(run.scheduler.total_steps());
  if (run.recipe.benchmark) return at + ": a benchmark saves no checkpoint, and its figures are not written";
  if (!run.recipe.checkpoint.enabled)
    return at + ": no checkpoint was saved because checkpoint.enabled is false";
  const std::optional<std::string>& from = run.recipe.checkpoint.restore_from;
  const bool follows = !from || *from == "LATEST";
  return at + ": saved " + directory_of(run, *info).string() + "; the same command " +
         (follows ? "resumes from there" : "with --checkpoint.restore_from LATEST resumes from there");
}

MetricsOwner metrics_owner(const RunSpec& run) {
  MetricsOwner out;
  out.directory = run.recipe.checkpoint.directory;
  out.training = run.metrics;
  out.is_named = run.metrics != default_metrics(run.recipe.checkpoint);
  out.saves = run.recipe.checkpoint.enabled;
  for (const ValidationSet& set : run.validation) out.sets.push_back(set.name);
  out.has_samples = !run.recipe.samples.prompts.empty();
  if (!run.resume) return out;
  const auto& [directory, position, losses] = *run.resume;
  MetricsOwner::Resumed resumed{directory, position.step, losses.training, losses.validation, {}};
  for (const std::string& set : out.sets)
    if (owes_validation(run, set)) resumed.owed.insert(set);
  out.resumed = std::move(resumed);
  return out;
}

JournalOf journal_of(const RunSpec& run, ModelFlops flops) {
  return {metrics_owner(run),    sinks_of(run.recipe.sections),
          told_to_sinks(run),    run.scheduler.total_steps(),
          run.setup.sizes.world, run.recipe.steps.max_skipped_updates,
          std::move(flops)};
}

PeakFlops peak_of(const RunSpec& run, const engine::Model& model) {
  const std::optional<BenchmarkSection>& benchmark = run.recipe.benchmark;
  const std::optional<double> in_file =
      benchmark && benchmark->peak_tflops ? benchmark->peak_tflops : run.recipe.mfu.peak_tflops;
  const std::optional<double> given =
      run.peak_flops || !in_file ? run.peak_flops : std::optional(*in_file * 1e12);
  const at::ScalarType dtype = product_dtype(run.setup, run.model.dtype);
  if (const auto& name = run.recipe.mfu.device) return peak_flops(given, c10::DeviceType::CUDA, *name, dtype);
  return peak_flops(given, model.mesh.device().type(), model.device ? model.device->name() : "", dtype);
}

ModelFlops flops_of(const RunSpec& run, const engine::Model& model, const ModelSize& size) {
  // For ragged rows the mean length; attention makes longer rows more expensive.
  const int64_t length =
      run.dataset.is_ragged() ? std::llround(run.dataset.mean_text()) : run.dataset.length();
  const double per_token =
      run.model.spec->flops_per_token(length) * trained_share(size.parameters, size.frozen);
  return {per_token, run.setup.sizes.world, peak_of(run, model)};
}

StepPlan step_plan(const Setup& setup, const PreparedModel& model, const Recipe& recipe,
                   const std::optional<RunPipeline>& pipeline) {
  StepPlan out;
  out.setup = setup;
  out.make_units = [model] { return model.make(); };
  out.packed = model.packed();
  out.of_other_models = model.of_other_models();
  out.make_optimizer = recipe.optimizer.make;
  out.step = step_config(recipe);
  out.products = product_dtype(setup, model.dtype);
  out.flops_per_token = [model](int64_t length) { return model.spec->flops_per_token(length); };
  out.local_batch_size = recipe.steps.local_batch_size;
  out.global_batch_size = recipe.steps.global_batch_size;
  if (pipeline) out.microbatches_of_pass = pipeline->microbatches;
  return out;
}

}  // namespace heddle
