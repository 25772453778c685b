// What a rank of a run will hold, found without the rank.
#pragma once

#include <optional>

#include "heddle/parallel/plan.h"
#include "lib/run/model/model_size.h"
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

// The ranks between two neighbours on the axis pp.
int stride_of_pp(const Setup& setup);

// The plan's own strategy shards the model on meta, in a world where nothing is sent, on the first rank of
// each of the pipeline's stages. Throws what the strategy refuses; its other errors say nothing about the
// run: then it is empty, with a warning in `setup`. Empty for worlds that are too large to lay out.
std::optional<RankSizes> sizes_if_known(const Plan& plan, Setup& setup, const PreparedModel& model,
                                        const Recipe& recipe);

// Throws Error{config} where parameters, gradients and the optimizer's state of the ranks on this machine
// take more than its memory, or than the control group of this process may have: what no order of work could
// change. Not with model.check_memory: false. `memory`: in bytes; 0: is asked.
void check_memory(const RankSizes& sizes, const ModelSection& section, int local_ranks, double memory = 0);

}  // namespace heddle
