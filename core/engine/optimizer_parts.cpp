// The optimizer's state as named boxes.
#include <vector>

#include "heddle/engine/engine.h"

namespace heddle::engine {

std::vector<checkpoint::Part> optimizer_parts(Step& step) {
  std::vector<checkpoint::Part> parts;
  for (const OptimizerState& state : step.optimizer_state()) {
    parts.push_back(checkpoint::part_of(*state.shard, state.exp_avg, "exp_avg."));
    parts.push_back(checkpoint::part_of(*state.shard, state.exp_avg_sq, "exp_avg_sq."));
    parts.push_back({"step." + state.shard->name, state.step, {}, {}});
    if (state.master.defined()) parts.push_back(checkpoint::part_of(*state.shard, state.master, "master."));
  }
  return parts;
}

}  // namespace heddle::engine
