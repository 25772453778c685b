// Reads the modules of the units.
#include "trainer/metrics/expert_size.h"

#include <ATen/core/Tensor.h>

#include "heddle/model/module.h"
#include "heddle/nn/experts.h"
#include "trainer/metrics/amounts.h"

namespace heddle {
namespace {

ExpertLayer layer_of(MoeLayer& module, const std::vector<ParameterSlot>& slots) {
  const Experts& experts = module.experts();
  ExpertLayer layer{&experts, "", experts.shape().experts, module.router().config().rule.top_k, 0};
  for (const ParameterSlot& slot : slots) {
    if (slot.tensor == &experts.gate_up) layer.parameter = slot.name;
    if (slot.tensor == &experts.gate_up || slot.tensor == &experts.down)
      layer.parameters += slot.tensor->numel();
  }
  return layer;
}

void collect(Module& module, const std::vector<ParameterSlot>& slots, ExpertLayers& layers) {
  if (auto* layer = dynamic_cast<MoeLayer*>(&module)) layers.push_back(layer_of(*layer, slots));
  for (const auto& [name, child] : module.children()) collect(*child, slots, layers);
}

}  // namespace

ExpertLayers expert_layers_of(const Units& units) {
  ExpertLayers layers;
  for (const auto& unit : units)
    if (Module* module = unit->module()) collect(*module, unit->parameters(), layers);
  return layers;
}

ExpertSize size_of(const ExpertLayers& layers, const Stages& stages) {
  ExpertSize size;
  for (const ExpertLayer& layer : layers) {
    ++size.layers;
    size.experts += layer.experts;
    size.inactive += layer.parameters / layer.experts * (layer.experts - layer.top_k);
    if (stages.whole()->sizes.count(layer.parameter) == 0) continue;  // of another rank's stage, and gone
    ++size.held_layers;
    size.held += layer.module->held();
  }
  return size;
}

std::string experts_text(const ExpertSize& size, int64_t parameters) {
  if (size.layers == 0) return "";
  return std::to_string(size.experts) + " in " + std::to_string(size.layers) +
         (size.layers == 1 ? " layer" : " layers") + "; a token meets " +
         count_text(parameters - size.inactive) + " of " + count_text(parameters) +
         " parameters; a rank computes " + std::to_string(size.held) + " in " +
         std::to_string(size.held_layers);
}

}  // namespace heddle
