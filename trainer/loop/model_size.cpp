// Counts parameters, and the bytes of shards.
#include "trainer/loop/model_size.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <set>
#include <string>

namespace heddle {
namespace {

int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.numel() * tensor.element_size());
}

}  // namespace

ModelSize size_of(const Units& units) {
  ModelSize size;
  std::set<std::string> seen;
  for (const auto& unit : units) {
    int64_t bytes = 0;
    for (const ParameterSlot& slot : unit->parameters()) {
      bytes += bytes_of(*slot.tensor);
      if (seen.insert(slot.name).second) size.parameters += slot.tensor->numel();
    }
    size.largest_unit = std::max(size.largest_unit, bytes);
  }
  return size;
}

void add_shards(ModelSize& size, Stages& stages, bool master_weights) {
  for (const auto& stage : stages)
    for (const Shard& shard : stage->owned()) {
      size.owned += bytes_of(shard.tensor);
      const bool copies = master_weights && shard.tensor.scalar_type() != at::kFloat;
      size.rounded = size.rounded || (!master_weights && shard.tensor.element_size() == 2);
      size.optimizer += shard.tensor.numel() * 4 * (copies ? 3 : 2);
    }
  size.gradients = size.owned;
}

}  // namespace heddle
