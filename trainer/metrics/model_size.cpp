// Counts parameters, and the bytes of shards and of the storage behind the model's tensors.
#include "trainer/metrics/model_size.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace heddle {
namespace {

int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.numel() * tensor.element_size());
}

// Bytes of storage, each once, however many tensors look into it.
class Storages {
 public:
  int64_t add(const at::Tensor& tensor) {
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    return seen_.insert(storage).second ? static_cast<int64_t>(storage->nbytes()) : 0;
  }

 private:
  std::set<const c10::StorageImpl*> seen_;
};

bool is_freed(const at::Tensor& leaf) {
  return leaf.numel() > 0 && leaf.storage().nbytes() == 0;
}

}  // namespace

UnitSlots slots_of(const Units& units) {
  UnitSlots slots;
  for (const auto& unit : units) slots.push_back(unit->parameters());
  return slots;
}

ParameterCount count_parameters(const UnitSlots& slots) {
  ParameterCount count;
  std::set<std::string> seen;
  for (const auto& unit : slots)
    for (const ParameterSlot& slot : unit) {
      if (!seen.insert(slot.name).second) continue;
      count.all += slot.tensor->numel();
      if (!slot.trainable()) count.frozen += slot.tensor->numel();
    }
  return count;
}

ModelSize size_of(const UnitSlots& slots, Stages& stages, bool master_weights) {
  ModelSize size;
  Storages storages;
  std::map<std::string, int64_t> shards;  // bytes of those that train
  for (const Shard* shard : stages.shards()) {
    size.held += storages.add(shard->tensor);
    if (!shard->tensor.requires_grad()) continue;
    shards[shard->name] += bytes_of(shard->tensor);
    const bool copies = master_weights && shard->tensor.scalar_type() != at::kFloat;
    size.rounded = size.rounded || (!master_weights && shard->tensor.element_size() == 2);
    size.optimizer += shard->tensor.numel() * 4 * (copies ? 3 : 2);
  }
  std::set<std::string> seen;
  for (const auto& unit : slots) {
    int64_t gathered = 0;
    for (const ParameterSlot& slot : unit) {
      if (stages.whole()->sizes.count(slot.name) == 0) continue;  // of another rank's stage, and gone
      const at::Tensor& leaf = *slot.tensor;
      size.held += storages.add(leaf);
      if (is_freed(leaf)) gathered += bytes_of(leaf);
      if (seen.insert(slot.name).second && slot.trainable())
        size.gradients += is_freed(leaf) ? shards[slot.name] : bytes_of(leaf);
    }
    size.largest_unit = std::max(size.largest_unit, gathered);
  }
  return size;
}

SavedBytes saved_bytes(const Units& units, bool master_weights) {
  SavedBytes out;
  std::set<std::string> seen;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      if (!seen.insert(slot.name).second) continue;
      const at::Tensor& tensor = *slot.tensor;
      const bool master = master_weights && tensor.scalar_type() != at::kFloat;
      const int64_t state = master ? 3 * 4 * tensor.numel() : 2 * bytes_of(tensor);
      out.model += bytes_of(tensor);
      out.checkpoint += bytes_of(tensor) + (tensor.requires_grad() ? state : 0);
    }
  return out;
}

}  // namespace heddle
