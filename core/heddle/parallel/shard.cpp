// A slot as the parallelizers left it: the box of the whole parameter that this rank's tensor covers.
#include "heddle/parallel/shard.h"

namespace heddle {

Shard whole_shard(const ParameterSlot& slot, std::span<const Placed> placed) {
  Shard shard;
  shard.name = slot.name;
  shard.shape = slot.tensor->sizes().vec();
  shard.offset.assign(shard.shape.size(), 0);
  shard.init = slot.init;
  for (const Placed& split : placed) {
    if (split.parameter != slot.name) continue;
    if (split.kind == Placed::Kind::partial_gradient) {
      shard.partial.push_back(split.axis);
      continue;
    }
    shard.shape[split.dim] = split.whole;
    shard.offset[split.dim] = split.offset;
    shard.axes.push_back(split.axis);
  }
  return shard;
}

}  // namespace heddle
