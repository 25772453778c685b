// Counts parameters, and the bytes of shards and of the storage behind the model's tensors.
#include "lib/cost/model_size.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "heddle/mesh/call.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/experts.h"
#include "lib/train/optimizer/updater.h"

namespace heddle {
namespace {

int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.numel() * tensor.element_size());
}

// Sums the bytes of storages, each counted once even if several tensors share it.
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
  if (auto* layer = model::as<MoeLayer>(module)) layers.push_back(layer_of(*layer, slots));
  for (const auto& [name, child] : module.children()) collect(*child, slots, layers);
}

ExpertSize experts_of(const std::vector<ExpertLayer>& layers, const Stages& stages) {
  ExpertSize size;
  for (const ExpertLayer& layer : layers) {
    ++size.layers;
    size.experts += layer.experts;
    size.inactive += layer.parameters / layer.experts * (layer.experts - layer.top_k);
    // belongs to another rank's stage, and was freed
    if (stages.whole()->sizes.count(layer.parameter) == 0) continue;
    ++size.held_layers;
    size.held += layer.module->held();
    size.parts = layer.module->parts();
  }
  return size;
}

constexpr const char* kUnits[] = {"", " K", " M", " G", " T", " P", " E"};

}  // namespace

WholeModel whole_model(const Units& units, const std::map<std::string, int64_t>& packed,
                       const std::set<std::string>& other_models) {
  WholeModel out;
  std::set<std::string> seen;
  for (const auto& unit : units) {
    out.units.emplace_back(unit->name());
    out.slots.push_back(unit->parameters());
    if (Module* module = unit->module()) {
      collect(*module, out.slots.back(), out.expert_layers);
      module->visit("",
                    [&](const std::string&, Module& one) { out.draws = out.draws || one.traits().draws; });
    }
    for (const ParameterSlot& slot : out.slots.back()) {
      if (other_models.contains(slot.name) || !seen.insert(slot.name).second) continue;
      const auto counted = packed.find(slot.name);
      const int64_t count = counted == packed.end() ? slot.tensor->numel() : counted->second;
      out.parameters += count;
      if (!slot.trainable()) out.frozen += count;
    }
  }
  std::erase_if(out.expert_layers,
                [&](const ExpertLayer& layer) { return other_models.contains(layer.parameter); });
  return out;
}

namespace {

// Bytes of the boxes; scalars per shard are negligible.
int64_t bytes_of(const OptimizerState& state) {
  int64_t bytes = 0;
  for (const StateTensor& one : state.tensors)
    if (one.tensor.dim() > 0) add(bytes, bytes_of(one.tensor));
  return bytes;
}

struct KeptState {
  int64_t bytes = 0;
  bool master = false;  // has a float32 copy
};

std::map<const Shard*, KeptState> by_shard(std::span<const OptimizerState> states) {
  std::map<const Shard*, KeptState> out;
  for (const OptimizerState& state : states) out[state.shard] = {bytes_of(state), state.has("master")};
  return out;
}

}  // namespace

ModelSize size_of(const WholeModel& model, Stages& stages, std::span<const OptimizerState> states,
                  std::optional<double> max_norm) {
  ModelSize size;
  size.parameters = model.parameters;
  size.frozen = model.frozen;
  size.experts = experts_of(model.expert_layers, stages);
  const auto kept = by_shard(states);
  Storages storages;
  std::map<std::string, int64_t> shards;  // bytes of trained shards
  for (const Shard* shard : stages.shards()) {
    add(size.held, storages.add(shard->tensor));
    if (!shard->tensor.requires_grad()) continue;
    shards[shard->name] += bytes_of(shard->tensor);
    const auto [of_state, master] = kept.count(shard) == 0 ? KeptState() : kept.at(shard);
    const bool is_short = shard->tensor.element_size() == 2 && shard->tensor.numel() > 0;
    size.rounded = size.rounded || (!master && is_short);
    add(size.optimizer, of_state);
    // Copies that undo an update: weights, state and, for late clipping, the gradient.
    if (!stages.pipeline().config.post_validation) continue;
    add(size.optimizer, of_state);
    if (!master) add(size.optimizer, bytes_of(shard->tensor));
    if (max_norm) add(size.optimizer, bytes_of(shard->tensor));
  }
  std::set<std::string> seen;
  for (size_t i = 0; i < model.slots.size(); ++i) {
    // belongs to another rank's stage, and was freed
    if (stages.whole()->units.count(model.units[i]) == 0) continue;
    int64_t gathered = 0;
    for (const ParameterSlot& slot : model.slots[i]) {
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
         (of.layers == 1 ? " layer" : " layers") + "; a token uses " +
         count_text(size.parameters - of.inactive) + " of " + count_text(size.parameters) +
         " parameters; a rank has " + std::to_string(of.held) + " in " + std::to_string(of.held_layers) +
         (of.parts == 1 ? "" : ", 1/" + std::to_string(of.parts) + " of each");
}

std::vector<OptimizerState> states_of(Stages& stages, const DeviceMesh& mesh, const StepConfig& config,
                                      IOptimizer& optimizer) {
  return train::Updater(stages.shards(), mesh, config, optimizer).state();
}

SavedBytes saved_bytes(const Units& units, const std::set<std::string>& left_out, const StepConfig& config,
                       IOptimizer& optimizer) {
  SavedBytes out;
  std::set<std::string> seen;
  std::deque<Shard> wholes;
  std::vector<Shard*> shards;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      if (!seen.insert(slot.name).second) continue;
      add(out.model, bytes_of(*slot.tensor));
      if (left_out.count(slot.name) == 0) add(out.checkpoint, bytes_of(*slot.tensor));
      wholes.push_back(whole_shard(slot, {}));
      wholes.back().tensor = *slot.tensor;
      shards.push_back(&wholes.back());
    }
  AloneRendezvous alone;
  const DeviceMesh mesh = mesh::build({}, alone, "");
  for (const OptimizerState& state : train::Updater(shards, mesh, config, optimizer).state())
    add(out.checkpoint, bytes_of(state));
  return out;
}

std::string count_text(int64_t count) {
  auto value = static_cast<double>(count);
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  char text[48];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f%s" : "%.2f%s", value, kUnits[unit]);
  return text;
}

}  // namespace heddle
