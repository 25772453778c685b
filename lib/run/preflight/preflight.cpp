// Preflight as a chain of immutable values, each computed from the earlier ones. Errors and warnings are
// collected, and a value whose inputs are missing is skipped.
#include "lib/run/preflight/preflight.h"

#include <algorithm>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/engine/engine.h"
#include "lib/run/checkpointing/conflicts.h"
#include "lib/run/checkpointing/disk_space.h"
#include "lib/run/checkpointing/resume.h"
#include "lib/run/checkpointing/run_lock.h"
#include "lib/run/facts/run_facts.h"
#include "lib/run/preflight/check_model.h"
#include "lib/run/preflight/checks.h"
#include "lib/run/preflight/open_data.h"
#include "lib/run/preflight/throw_at_key.h"
#include "lib/run/spec/settings.h"

namespace heddle {
namespace {

// Returns the plugins' plan for the setup, for checks. Throws for features that are not built. A rank
// chooses again, in engine::model().
Plan plan_of(Setup setup, PluginRegistry& plugins, Findings& found) {
  if (!found.is_for_another_machine()) return engine::choose(setup, plugins);
  try {
    engine::choose_device(setup, plugins);
  } catch (const Error& error) {
    found.warn_missing(error.message());
  }
  setup.backend = "gloo";
  return engine::choose(setup, plugins);
}

// Whether the recipe has all sections that checking the units needs.
bool has_units(const Recipe& recipe) {
  const auto is_read = [&](const Node::Entry& section) { return recipe.is_read(section.first); };
  return recipe.optimizer.make && recipe.is_read("step_scheduler", "local_batch_size") &&
         std::all_of(recipe.other_sections.begin(), recipe.other_sections.end(), is_read);
}

bool has_rates(const Recipe& recipe) {
  return recipe.optimizer.make && recipe.is_read("optimizer") && recipe.is_read("lr_scheduler") &&
         recipe.is_read("step_scheduler");
}

// The values of the chain. A member is empty if its error was recorded or its files are on another machine.

struct World {
  std::optional<Setup> setup;
  std::optional<Plan> plan;
  Sizes sizes() const { return setup ? setup->sizes : Sizes(); }
};

struct KnownModel {
  std::optional<PreparedModel> opened;
  std::optional<CheckedModel> checked;
  // Returns the model after its transforms if known, else as opened.
  const PreparedModel* model() const { return checked ? &checked->model : opened ? &*opened : nullptr; }
};

struct KnownData {
  std::optional<Rows> rows;
  Shuffle shuffle = Shuffle::off;
  std::optional<PreparedModel> model;  // with the tokenizer of its data
  std::vector<ValidationSet> validation;
};

struct KnownSteps {
  std::optional<StepScheduler> scheduler;
  std::optional<LrSchedule> rates;
  std::filesystem::path samples_tokenizer;
};

// Computes mesh axes and the plan of the plugins.
World see_world(const Recipe& recipe, PluginRegistry& plugins, int world_size, Findings& found) {
  const Node& keys = recipe.configuration;
  World out;
  out.setup = found.attempt([&] { return engine::validate(keys, plugins, world_size); });
  if (out.setup) found.warnings = out.setup->warnings;
  found.warnings.insert(found.warnings.end(), recipe.warnings.begin(), recipe.warnings.end());
  if (out.setup) found.errors.attempt([&] { refuse_axes(recipe.sections, *out.setup); });
  found.errors.attempt([&] { engine::refuse_not_built(keys, recipe.not_built); });
  if (out.setup)
    out.plan =
        found.attempt([&] { return at_keys(keys, [&] { return plan_of(*out.setup, plugins, found); }); });
  found.errors.attempt([&] { require_data(keys); });
  if (!found.is_for_another_machine()) found.errors.attempt([&] { check_staging(recipe.checkpoint); });
  return out;
}

// Opens the model and checks its units against the plan.
KnownModel see_model(const Recipe& recipe, const World& world, PluginRegistry& plugins, Findings& found) {
  KnownModel out;
  if (!recipe.is_read("model")) return out;
  out.opened = found.attempt([&] { return open_model(recipe, plugins, found); }).value_or(std::nullopt);
  if (!out.opened || !world.plan || !has_units(recipe)) return out;
  out.checked = found.attempt([&] {
    return at_keys(recipe.configuration,
                   [&] { return check_units(*out.opened, recipe, *world.setup, *world.plan, found); });
  });
  return out;
}

// Opens rows that fit the model, and sets the tokenizer of the model's exports. A run that is already refused
// prepares nothing.
KnownData see_data(const Recipe& recipe, const KnownModel& model, PluginRegistry& plugins,
                   const PreparationOptions& preparation, Findings& found) {
  DataSource source{recipe, plugins, preparation, model.model()};
  if (!found.errors.empty()) source.preparation.make = false;
  KnownData out;
  out.shuffle = recipe.shuffle;
  if (source.model != nullptr) out.model = *source.model;
  if (recipe.dataset)
    if (auto data = found.attempt([&] { return open_training(source, found); })) {
      auto noted = found.attempt([&]() -> std::optional<PreparedModel> {
        return out.model ? std::optional(with_tokens_of(*data, *out.model, source, found)) : std::nullopt;
      });
      if (noted) out.model = std::move(*noted);
      out.rows = std::move(data->rows);
      out.shuffle = data->shuffle;
    }
  source.model = out.model ? &*out.model : nullptr;
  for (const DatasetSection& section : recipe.validation) {
    auto set = found.attempt(
        [&] { return open_validation(section, out.rows ? &*out.rows : nullptr, source, found); });
    if (set && *set) out.validation.push_back(std::move(**set));
  }
  if (model.checked)
    found.errors.attempt([&] { check_export(*model.checked, out.model->origin, recipe.checkpoint); });
  return out;
}

std::filesystem::path find_samples_tokenizer(const Recipe& recipe, const Sizes& sizes, const KnownData& data,
                                             Findings& found) {
  const SamplesSection& section = recipe.samples;
  if (section.prompts.empty()) return {};
  check_samples(section, sizes);
  if (!recipe.steps.val_every_steps && !recipe.steps.validate_on_checkpoint)
    found.warn(section.where +
               " has no effect, because this run has no validation; set "
               "step_scheduler.val_every_steps");
  if (!data.model || !data.rows) return {};
  return samples_tokenizer(section, data.rows->samples().tokenizer(), *data.model);
}

// Computes the steps and their learning rates.
KnownSteps see_steps(const Recipe& recipe, const World& world, const KnownData& data, Findings& found) {
  KnownSteps out;
  const StepSection& steps = recipe.steps;
  if (world.setup && recipe.is_read("step_scheduler", "local_batch_size") &&
      recipe.is_read("step_scheduler", "global_batch_size"))
    found.errors.attempt([&] { check_split(steps, world.sizes().dp); });
  found.errors.attempt(
      [&] { out.samples_tokenizer = find_samples_tokenizer(recipe, world.sizes(), data, found); });
  if (!world.setup || !has_rates(recipe)) return out;
  found.errors.attempt([&] {
    found.warn(no_validation_text(recipe));
    if (!data.rows) return;
    const int64_t samples = data.rows->size();
    check_batch(steps, samples, data.rows->packing() ? data.rows->used_samples() : 0);
    out.scheduler.emplace(steps, world.sizes().dp, samples - samples % recipe.whole_samples);
    out.rates.emplace(recipe.lr_schedule, engine::Rates{*recipe.optimizer.lr, *recipe.optimizer.weight_decay},
                      out.scheduler->total_steps());
  });
  return out;
}

}  // namespace

Preflight preflight(const Recipe& given, PluginRegistry& plugins, int world_size, Machine machine,
                    const PreparationOptions& preparation) {
  Recipe recipe = with_plugins(given, plugins);  // adds the keys that plugins read
  Findings found{recipe.errors, {}, machine};
  World world = see_world(recipe, plugins, world_size, found);            // axes and plan
  KnownModel model = see_model(recipe, world, plugins, found);            // model and units
  KnownData data = see_data(recipe, model, plugins, preparation, found);  // rows
  KnownSteps steps = see_steps(recipe, world, data, found);               // steps and learning rates
  found.errors.raise();
  Preflight out;
  out.recipe = std::move(recipe);
  out.setup = std::move(*world.setup);
  out.plan = std::move(*world.plan);
  out.setup.warnings = std::move(found.warnings);
  out.model = std::move(data.model);
  if (model.checked) {
    out.pipeline = std::move(model.checked->pipeline);
    out.saved = model.checked->saved;
    out.exports = model.checked->exports;
  }
  out.dataset = std::move(data.rows);
  out.shuffle = data.shuffle;
  out.validation = std::move(data.validation);
  out.samples_tokenizer = std::move(steps.samples_tokenizer);
  out.scheduler = std::move(steps.scheduler);
  out.rates = std::move(steps.rates);
  return out;
}

namespace {

void warn(RunSpec& run, std::string text) {
  if (!text.empty()) run.setup.warnings.push_back(std::move(text));
}

// Returns the run without looking at checkpoints.
RunSpec fresh_run(Preflight checked, const RunOptions& options) {
  RunSpec run{std::move(checked.recipe),     std::move(checked.setup),
              std::move(checked.pipeline),   std::move(*checked.model),
              std::move(*checked.dataset),   std::move(checked.validation),
              std::move(*checked.scheduler), *checked.rates};
  run.shuffle = checked.shuffle;
  run.exports = checked.exports;
  run.metrics = options.metrics.empty() ? default_metrics(run.recipe.checkpoint) : options.metrics;
  run.saved = checked.saved;
  run.samples_tokenizer = std::move(checked.samples_tokenizer);
  run.peak_flops = options.peak_flops;
  run.trace = options.trace;
  run.content = content_of(run);
  run.settings = settings_of(run);
  if (run.recipe.checkpoint.enabled) run.bases = identities_of(run.model);
  warn(run, no_best_text(run));
  return run;
}

// Returns the run with the checkpoint that it resumes from, if any.
RunSpec from_checkpoint(RunSpec run, std::chrono::milliseconds patience) {
  const CheckpointSection& section = run.recipe.checkpoint;
  if (section.enabled) refuse_where_a_run_saves(section.directory, patience);
  run.latest = checkpoint::pointed(std::filesystem::path(section.directory) / "LATEST");
  run.resume = find_checkpoint(run, run.setup.warnings);
  warn(run, no_export_text(run));
  warn(run, another_rate_text(run));
  run.taken = taken_checkpoints(run);
  warn(run, disk_space_warning(run));
  if (run.resume) run.scheduler.go_on_from(run.resume->position.step);
  return run;
}

}  // namespace

int64_t row_length_of(const Preflight& checked) {
  if (checked.dataset) return checked.dataset->length();
  return checked.recipe.packed.rules.size > 0 ? checked.recipe.packed.rules.size
         : checked.recipe.dataset             ? checked.recipe.dataset->sequence_length
                                              : 0;
}

void check_row_length(const PreparedModel& model, int64_t length) {
  const int64_t most = model.spec->facts().max_positions;
  if (most > 0 && length > most)
    throw Error(ErrorCode::usage, "--row-length",
                std::to_string(length) + " is longer than the model's " + std::to_string(most) + " positions",
                "use a shorter row length, or set model.config.max_position_embeddings");
}

RunSpec spec_of(Preflight checked, const RunOptions& options) {
  RunSpec fresh = fresh_run(std::move(checked), options);
  if (options.writes_here) refuse_outputs(fresh, options);
  RunSpec run = from_checkpoint(std::move(fresh), options.patience);
  if (run.setup.sizes.world > 1) run.files = files_of(run);
  return run;
}

RunSpec prepare_run(const Recipe& recipe, PluginRegistry& plugins, int world_size,
                    const RunOptions& options) {
  Preflight checked = preflight(recipe, plugins, world_size, Machine::this_one, options.preparation);
  const bool on_cpu = checked.plan.device == nullptr;
  RunSpec run = spec_of(std::move(checked), options);
  // Lays the ranks out in a dry world, which calls the strategy before any rank starts.
  const auto sizes =
      sizes_if_known(step_plan(run.setup, run.model, run.recipe, run.pipeline), plugins, run.setup.warnings);
  if (!sizes) return run;
  run.size = sizes->most;
  if (on_cpu && run.recipe.model.check_memory)
    check_memory(*sizes, run.recipe.model.where, options.local_ranks);
  return run;
}

}  // namespace heddle
