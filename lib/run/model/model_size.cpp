// Counts parameters, and the bytes of shards and of the storage behind the model's tensors.
#include "lib/run/model/model_size.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "heddle/model/module.h"
#include "heddle/nn/experts.h"
#include "lib/run/model/amounts.h"

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

void add(int64_t& sum, int64_t bytes) {
  if (__builtin_add_overflow(sum, bytes, &sum)) sum = std::numeric_limits<int64_t>::max();
}

bool is_freed(const at::Tensor& leaf) {
  return leaf.numel() > 0 && leaf.storage().nbytes() == 0;
}

ExpertLayer layer_of(MoeLayer& module, const std::vector<ParameterSlot>& slots_of_unit) {
  Experts& experts = module.experts();
  ExpertLayer layer{&experts, "", experts.shape().experts, module.router().config().rule.top_k, 0};
  for (const ParameterSlot& slot : experts.slots()) layer.parameters += slot.tensor->numel();
  for (const ParameterSlot& slot : slots_of_unit)
    if (slot.tensor == &experts.down) layer.parameter = slot.name;
  return layer;
}

void collect(Module& module, const std::vector<ParameterSlot>& slots, std::vector<ExpertLayer>& layers) {
  if (auto* layer = dynamic_cast<MoeLayer*>(&module)) layers.push_back(layer_of(*layer, slots));
  for (const auto& [name, child] : module.children()) collect(*child, slots, layers);
}

ExpertSize experts_of(const std::vector<ExpertLayer>& layers, const Stages& stages) {
  ExpertSize size;
  for (const ExpertLayer& layer : layers) {
    ++size.layers;
    size.experts += layer.experts;
    size.inactive += layer.parameters / layer.experts * (layer.experts - layer.top_k);
    if (stages.whole()->sizes.count(layer.parameter) == 0) continue;  // of another rank's stage, and gone
    ++size.held_layers;
    size.held += layer.module->held();
    size.parts = layer.module->parts();
  }
  return size;
}

}  // namespace

WholeModel whole_model(const Units& units) {
  WholeModel out;
  std::set<std::string> seen;
  for (const auto& unit : units) {
    out.slots.push_back(unit->parameters());
    if (Module* module = unit->module()) collect(*module, out.slots.back(), out.expert_layers);
    for (const ParameterSlot& slot : out.slots.back()) {
      if (!seen.insert(slot.name).second) continue;
      out.parameters += slot.tensor->numel();
      if (!slot.trainable()) out.frozen += slot.tensor->numel();
    }
  }
  return out;
}

ModelSize size_of(const WholeModel& model, Stages& stages, bool master_weights,
                  std::optional<double> max_norm) {
  ModelSize size;
  size.parameters = model.parameters;
  size.frozen = model.frozen;
  size.experts = experts_of(model.expert_layers, stages);
  Storages storages;
  std::map<std::string, int64_t> shards;  // bytes of those that train
  for (const Shard* shard : stages.shards()) {
    add(size.held, storages.add(shard->tensor));
    if (!shard->tensor.requires_grad()) continue;
    shards[shard->name] += bytes_of(shard->tensor);
    const bool copies = master_weights && shard->tensor.scalar_type() != at::kFloat;
    size.rounded = size.rounded || (!master_weights && shard->tensor.element_size() == 2);
    const int64_t each = copies ? shard->tensor.numel() * 4 : bytes_of(shard->tensor);  // as AdamW keeps it
    for (int i = 0; i < (copies ? 3 : 2); ++i) add(size.optimizer, each);
    // What undoes an update: weights, both moments and, to clip after all, the gradient.
    if (!stages.pipeline().config.post_validation) continue;
    for (int i = 0; i < 3; ++i) add(size.optimizer, each);
    if (max_norm) add(size.optimizer, bytes_of(shard->tensor));
  }
  std::set<std::string> seen;
  for (const auto& unit : model.slots) {
    int64_t gathered = 0;
    for (const ParameterSlot& slot : unit) {
      if (stages.whole()->sizes.count(slot.name) == 0) continue;  // of another rank's stage, and gone
      const at::Tensor& leaf = *slot.tensor;
      add(size.held, storages.add(leaf));
      if (is_freed(leaf)) gathered += bytes_of(leaf);
      if (seen.insert(slot.name).second && slot.trainable())
        add(size.gradients, is_freed(leaf) ? shards[slot.name] : bytes_of(leaf));
    }
    size.largest_unit = std::max(size.largest_unit, gathered);
  }
  return size;
}

std::string experts_text(const ModelSize& size) {
  const ExpertSize& of = size.experts;
  if (of.layers == 0) return "";
  return std::to_string(of.experts) + " in " + std::to_string(of.layers) +
         (of.layers == 1 ? " layer" : " layers") + "; a token meets " +
         count_text(size.parameters - of.inactive) + " of " + count_text(size.parameters) +
         " parameters; a rank computes " + std::to_string(of.held) + " in " + std::to_string(of.held_layers) +
         (of.parts == 1 ? "" : ", 1/" + std::to_string(of.parts) + " of each");
}

SavedBytes saved_bytes(const Units& units, bool master_weights) {
  SavedBytes out;
  std::set<std::string> seen;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      if (!seen.insert(slot.name).second) continue;
      const at::Tensor& tensor = *slot.tensor;
      const bool master = master_weights && tensor.scalar_type() != at::kFloat;
      const int64_t each = master ? 4 * tensor.numel() : bytes_of(tensor);
      add(out.model, bytes_of(tensor));
      add(out.checkpoint, bytes_of(tensor));
      for (int i = 0; tensor.requires_grad() && i < (master ? 3 : 2); ++i) add(out.checkpoint, each);
    }
  return out;
}

}  // namespace heddle
