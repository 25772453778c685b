// A slot as the parallelizers left it: the box of the whole parameter that this rank's tensor covers.
#include "heddle/parallel/shard.h"

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle {

namespace {

// Two offsets along one dim do not add up without the order of the two splits, which is not known.
void refuse_twice(const Placed& one, const Placed& other) {
  throw Error(ErrorCode::config, "distributed",
              "dim " + std::to_string(one.dim) + " of " + text::quoted(one.parameter) + " is split along " +
                  one.axis + " and along " + other.axis,
              "let one of the two parallelizers leave the parameter, or split another dim of it");
}

}  // namespace

Shard whole_shard(const ParameterSlot& slot, std::span<const Placed> placed) {
  Shard shard;
  shard.name = slot.name;
  shard.shape = slot.tensor->sizes().vec();
  shard.offset.assign(shard.shape.size(), 0);
  shard.init = slot.init;
  std::vector<const Placed*> split_by(shard.shape.size(), nullptr);
  for (const Placed& split : placed) {
    if (split.parameter != slot.name) continue;
    if (split.kind == Placed::Kind::partial_gradient) {
      shard.partial.push_back(split.axis);
      continue;
    }
    const Placed*& first = split_by.at(static_cast<size_t>(split.dim));
    if (first != nullptr) refuse_twice(*first, split);
    first = &split;
    shard.shape[split.dim] = split.whole;
    shard.offset[split.dim] = split.offset;
    shard.axes.push_back(split.axis);
  }
  return shard;
}

}  // namespace heddle
