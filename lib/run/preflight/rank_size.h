// What a rank of a run will hold, found without the rank.
#pragma once

#include <optional>

#include "heddle/engine/engine.h"
#include "lib/cost/model_size.h"
#include "lib/run/model/prepared_model.h"
#include "lib/run/recipe/recipe.h"

namespace heddle {

struct RankSizes {
  ModelSize most;      // of the rank that holds most
  double average = 0;  // bytes of parameters, gradients and optimizer: the mean over the pipeline's stages
  // Of the rank that holds most.
  double bytes() const {
    return static_cast<double>(most.held) + static_cast<double>(most.gradients) +
           static_cast<double>(most.optimizer);
  }
};

// The first rank of a stage of the pipeline in a dry world. What it is given outlives it; `whole` is the
// model that it made.
engine::DryHost first_rank_of_stage(int stage, const Setup& setup, const PreparedModel& model,
                                    WholeModel& whole);

// What the ranks of first_rank_of_stage() hold. Throws what the strategy refuses; its other errors say
// nothing about the run: then it is empty, with a warning in `setup`. Empty for worlds that are too large to
// lay out.
std::optional<RankSizes> sizes_if_known(Setup& setup, const PreparedModel& model, const Recipe& recipe,
                                        PluginRegistry& plugins);

// Throws Error{config} where parameters, gradients and the optimizer's state of the ranks on this machine
// take more than its memory, or than the control group of this process may have: what no order of work could
// change. Not with model.check_memory: false. `memory`: in bytes; 0: is asked.
void check_memory(const RankSizes& sizes, const ModelSection& section, int local_ranks, double memory = 0);

}  // namespace heddle
