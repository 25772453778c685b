// Opens a run's model and checks it against the plan, before any rank starts.
#pragma once

#include <optional>

#include "heddle/checkpoint/manifest.h"
#include "lib/cost/model_size.h"
#include "lib/report/header.h"
#include "lib/run/model/prepared_model.h"
#include "lib/run/preflight/findings.h"

namespace heddle {

// Returns the model; empty if the model or one of its teachers is on another machine. Throws Error.
std::optional<PreparedModel> open_model(const Recipe& recipe, PluginRegistry& plugins, Findings& found);

// Properties of a model's units on meta; each rank builds its own units later.
struct CheckedModel {
  PreparedModel model;                           // after its transforms
  SavedBytes saved;                              // bytes of one checkpoint
  CheckpointSection::Export exports;             // when the run exports the model
  std::optional<checkpoint::Manifest> exported;  // manifest of such an export
  std::optional<RunPipeline> pipeline;
};
// Checks units with the weights, the parameter groups of the optimizer, the parallelizers and the schedule;
// throws their errors.
CheckedModel check_units(const PreparedModel& opened, const Recipe& recipe, const Setup& setup,
                         const Plan& plan, Findings& found);

// Plans an export, so that its errors appear before the first step. Throws Error.
void check_export(const CheckedModel& checked, const checkpoint::HfOrigin& origin,
                  const CheckpointSection& section);

}  // namespace heddle
