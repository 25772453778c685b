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
                  "ranks along " + shard->differs.front() + " hold other values of '" + shard->name +
                      "' until the strategy makes them equal again",
                  "train with `heddle train`, whose checkpoints keep the values of each rank, or set the "
                  "strategy to make them equal in each step");
    parts.push_back(part_of(*shard, shard->tensor.detach()));
  }
  return parts;
}

std::vector<Part> strategy_parts(Stages& stages) {
  std::vector<Part> parts;
  for (const auto& stage : stages)
    for (StateTensor& one : stage->state())
      parts.push_back(
          {std::move(one.name), std::move(one.tensor), std::move(one.shape), std::move(one.offset)});
  return parts;
}

}  // namespace heddle::checkpoint
