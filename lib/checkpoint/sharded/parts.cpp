// Shards as boxes of a checkpoint.
#include <sstream>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"

namespace heddle::checkpoint {

Part part_of(const Shard& shard, const at::Tensor& tensor, const std::string& prefix) {
  if (tensor.sizes() != shard.tensor.sizes()) {
    std::ostringstream sizes;
    sizes << "'" << prefix << shard.name << "' is " << tensor.sizes() << ", and the shard beside it is "
          << shard.tensor.sizes();
    throw Error(ErrorCode::internal, "checkpoint", sizes.str(),
                "save a tensor of another shape as a Part with its own shape and offset");
  }
  return {prefix + shard.name, tensor, shard.shape, shard.offset, shard.tied_to_earlier};
}

std::vector<Part> model_parts(Stages& stages) {
  std::vector<Part> parts;
  for (const Shard* shard : stages.shards()) {
    if (!shard->differs.empty())
      throw Error(ErrorCode::input, "checkpoint",
                  "the values of '" + shard->name + "' differ between ranks along " + shard->differs.front() +
                      " until the strategy synchronizes them",
                  "train with `heddle train`, whose checkpoints contain the values of each rank, or set the "
                  "strategy to synchronize in every step");
    parts.push_back(part_of(*shard, shard->tensor.detach()));
  }
  return parts;
}

std::vector<Part> strategy_parts(Stages& stages) {
  std::vector<Part> parts;
  for (const auto& stage : stages)
    for (StateTensor& state : stage->state())
      parts.push_back(
          {std::move(state.name), std::move(state.tensor), std::move(state.shape), std::move(state.offset)});
  return parts;
}

}  // namespace heddle::checkpoint
