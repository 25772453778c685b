// The model of a run, opened and checked against its plan, before any rank starts.
#pragma once

#include <optional>

#include "heddle/checkpoint/manifest.h"
#include "lib/cost/model_size.h"
#include "lib/report/header.h"
#include "lib/run/model/prepared_model.h"
#include "lib/run/preflight/findings.h"

namespace heddle {

// Empty where another machine has the model or one of its teachers. Throws Error.
std::optional<PreparedModel> open_model(const Recipe& recipe, PluginRegistry& plugins, Findings& found);

// What the units of a model say, on meta: each rank makes its own later.
struct CheckedModel {
  PreparedModel model;                           // with what its transforms did
  SavedBytes saved;                              // of one checkpoint
  CheckpointSection::Export exports;             // when the run exports the model
  std::optional<checkpoint::Manifest> exported;  // of such an export
  std::optional<RunPipeline> pipeline;
};
// Throws what the weights, the groups of the optimizer, the parallelizers and the schedule refuse.
CheckedModel check_units(const PreparedModel& opened, const Recipe& recipe, const Setup& setup,
                         const Plan& plan, Findings& found);

// Plans an export: what it refuses is refused before the first step. Throws Error.
void check_export(const CheckedModel& checked, const checkpoint::HfOrigin& origin,
                  const CheckpointSection& section);

}  // namespace heddle
