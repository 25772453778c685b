// Opens the model, applies its transforms once, and checks its units against the plan.
#include "lib/run/preflight/check_model.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "heddle/base/text.h"
#include "heddle/engine/engine.h"
#include "lib/run/checkpointing/consolidated.h"
#include "lib/run/preflight/checks.h"
#include "lib/run/recipe/readers.h"
#include "lib/train/step_counts.h"

namespace heddle {
namespace {

bool is_here(const std::filesystem::path& place) {
  std::error_code ignored;
  return place.empty() || std::filesystem::exists(place, ignored);
}

// Returns how a batch of `rows` goes through the stages; empty without a pipeline.
std::optional<RunPipeline> pipeline_of(const Units& units, const Plan& plan, const Setup& setup, int64_t rows,
                                       Findings& found) {
  if (plan.schedule == nullptr) return std::nullopt;
  const PipelineConfig& words = plan.pipeline;
  RunPipeline out;
  out.schedule = words.table.empty() ? text::lower(words.schedule) : words.table;
  out.stages = static_cast<int>(parallel::map_stages(units, plan, setup.sizes.pp).rank_of_stage.size());
  out.microbatch_size = words.microbatch_size;
  out.microbatches = static_cast<int>(rows / words.microbatch_size);
  if (words.overlap && !overlaps(plan.schedule->plan(setup.sizes.pp, out.stages, out.microbatches)))
    found.warn(words.where + ".pp_overlap has no effect: the schedule '" + out.schedule +
               "' overlaps no actions");
  return out;
}

}  // namespace

std::optional<PreparedModel> open_model(const Recipe& recipe, PluginRegistry& plugins, Findings& found) {
  const std::filesystem::path place = model_path(recipe.model);
  if (found.is_for_another_machine() && !is_here(place)) {
    found.warn_missing(place.string() + " does not exist: the model is not checked");
    return std::nullopt;
  }
  for (const Node& section : other_models(recipe.sections)) {
    RecipeNotes notes;
    const std::filesystem::path other = model_path(recipe::read_model(section, notes));
    if (!found.is_for_another_machine() || is_here(other)) continue;
    found.warn_missing(other.string() + " does not exist: the models are not checked");
    return std::nullopt;
  }
  return prepare_model(recipe, plugins, found.warnings);
}

CheckedModel check_units(const PreparedModel& opened, const Recipe& recipe, const Setup& setup,
                         const Plan& plan, Findings& found) {
  using Export = CheckpointSection::Export;
  const CheckpointSection& saves = recipe.checkpoint;
  const bool exports = saves.enabled && recipe.is_read("checkpoint", "save_consolidated") &&
                       saves.save_consolidated != Export::never;
  auto [model, units] = apply_transforms(opened, exports, found.warnings);
  CheckedModel out{std::move(model), {}, saves.save_consolidated, {}, {}};
  if (out.model.added_files() != nullptr) out.exports = Export::never;
  warn_of_unused(out.model, units, found.warnings);
  check_weights(out.model, units);
  check_groups(units, recipe.optimizer);
  if (exports && out.exports != Export::never) out.exported = manifest_of(units);
  const auto optimizer = recipe.optimizer.make();
  out.saved = saved_bytes(units, out.model.elsewhere(), step_config(recipe), *optimizer);
  const int64_t rows = recipe.steps.local_batch_size;
  engine::check_model(plan, setup, units, rows);
  out.pipeline = pipeline_of(units, plan, setup, rows, found);
  if (out.pipeline && plan.pipeline.post_validation)
    train::check_can_undo(plan.pipeline.where, *optimizer, recipe.norm_type);
  return out;
}

void check_export(const CheckedModel& checked, const checkpoint::HfOrigin& origin,
                  const CheckpointSection& section) {
  if (checked.exported)
    (void)checkpoint::plan_hf(*checked.exported, origin, export_choice(section), checked.model.spec.get());
}

}  // namespace heddle
