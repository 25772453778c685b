// The optimizer's state as named boxes.
#include <vector>

#include "heddle/engine/engine.h"

namespace heddle::engine {

std::vector<checkpoint::Part> optimizer_parts(Step& step) {
  std::vector<checkpoint::Part> parts;
  for (const OptimizerState& state : step.optimizer_state())
    for (const StateTensor& one : state.tensors)
      parts.push_back({one.name + "." + state.shard->name, one.tensor, one.shape, one.offset,
                       state.shard->tied_to_earlier});
  return parts;
}

}  // namespace heddle::engine
