// Predicts the memory of a run's ranks without starting them.
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

// Input of a dry world: how model and optimizer are made, and how a step is split.
struct StepPlan {
  Setup setup;
  std::function<Units()> make_units;           // on meta
  std::map<std::string, int64_t> packed = {};  // as in whole_model(), like of_other_models
  std::set<std::string> of_other_models = {};
  std::function<std::unique_ptr<IOptimizer>()> make_optimizer;
  StepConfig step;
  c10::ScalarType products = c10::ScalarType::Float;  // dtype of products
  // FLOPs of the model per token in rows of this length, forward and backward; empty: unknown.
  std::function<double(int64_t)> flops_per_token = {};
  int64_t local_batch_size = 1, global_batch_size = 1;
  int64_t microbatches_of_pass = 1;  // in a pipeline
};

struct RankSizes {
  ModelSize most;      // sizes of the rank with the highest memory
  double average = 0;  // mean over pipeline stages of the bytes of parameters, gradients and optimizer
  // Total bytes of the rank with the highest memory.
  double bytes() const {
    return static_cast<double>(most.held) + static_cast<double>(most.gradients) +
           static_cast<double>(most.optimizer);
  }
};

// Returns the first rank of a pipeline stage in a dry world. The plan must outlive it; `whole` receives the
// model that it made.
engine::DryHost first_rank_of_stage(int stage, const StepPlan& plan, WholeModel& whole);

// Returns the sizes on the ranks of first_rank_of_stage(). Throws errors of the strategy. Other errors do not
// concern the run: the result is then empty, with a warning. Empty for worlds that are too large to lay out.
std::optional<RankSizes> sizes_if_known(const StepPlan& plan, PluginRegistry& plugins,
                                        std::vector<std::string>& warnings);

// Throws Error{config} at `where` if parameters, gradients and optimizer state of the ranks on this machine
// exceed its memory or the limit of this process's control group, so that no schedule of work could fit.
// `memory`: bytes; 0: read from the system.
void check_memory(const RankSizes& sizes, const std::string& where, int local_ranks, double memory = 0);

}  // namespace heddle
