// What a rank of a run will hold, found without the rank.
#pragma once

#include <c10/core/ScalarType.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"
#include "lib/cost/model_size.h"

namespace heddle {

// What a dry world takes of a run: how its model and its optimizer are made, and how a step is split.
struct StepPlan {
  Setup setup;
  std::function<Units()> make_units;           // on meta
  std::map<std::string, int64_t> packed = {};  // as in whole_model(), like the next
  std::set<std::string> of_other_models = {};
  std::function<std::unique_ptr<IOptimizer>()> make_optimizer;
  StepConfig step;
  c10::ScalarType products = c10::ScalarType::Float;  // what products are computed in
  int64_t local_batch_size = 1, global_batch_size = 1;
  int64_t microbatches_of_pass = 1;  // in a pipeline
};

struct RankSizes {
  ModelSize most;      // of the rank that holds most
  double average = 0;  // bytes of parameters, gradients and optimizer: the mean over the pipeline's stages
  // Of the rank that holds most.
  double bytes() const {
    return static_cast<double>(most.held) + static_cast<double>(most.gradients) +
           static_cast<double>(most.optimizer);
  }
};

// The first rank of a stage of the pipeline in a dry world. The plan outlives it; `whole` is the model that
// it made.
engine::DryHost first_rank_of_stage(int stage, const StepPlan& plan, WholeModel& whole);

// What the ranks of first_rank_of_stage() hold. Throws what the strategy refuses; its other errors say
// nothing about the run: then it is empty, with a warning. Empty for worlds that are too large to lay out.
std::optional<RankSizes> sizes_if_known(const StepPlan& plan, PluginRegistry& plugins,
                                        std::vector<std::string>& warnings);

// Throws Error{config} at `where` if parameters, gradients and the optimizer's state of the ranks on this
// machine take more than its memory, or than the control group of this process may have: what no order of
// work could change. `memory`: in bytes; 0: is asked.
void check_memory(const RankSizes& sizes, const std::string& where, int local_ranks, double memory = 0);

}  // namespace heddle
