// One walk over the model's modules and the plan's parallelizers.
#include "core/parallel/attach.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/module.h"

namespace heddle::parallel {
namespace {

void each_module(const Units& units, const std::function<void(Module&)>& visitor) {
  for (const auto& unit : units)
    if (Module* root = unit->module(); root != nullptr)
      root->visit("", [&](const std::string&, Module& module) { visitor(module); });
}

std::vector<IParallelizer*> ordered_transforms(const Plan& plan) {
  std::vector<IParallelizer*> out;
  for (const auto& parallelizer : plan.parallelizers)
    if (parallelizer->transform_order()) out.push_back(parallelizer.get());
  std::stable_sort(out.begin(), out.end(), [](const IParallelizer* a, const IParallelizer* b) {
    return *a->transform_order() < *b->transform_order();
  });
  for (size_t i = 1; i < out.size(); ++i)
    if (out[i]->transform_order() == out[i - 1]->transform_order())
      throw Error(ErrorCode::plugin_conflict, "IParallelizer::transform",
                  "'" + out[i - 1]->name() + "' and '" + out[i]->name() +
                      "' both change batches at the place " + std::to_string(*out[i]->transform_order()) +
                      ", so nothing says which comes first",
                  "give one of them another transform_order()");
  return out;
}

}  // namespace

Attached attached_to(const Units& units, const Plan& plan) {
  Attached attached;
  attached.parallelizers = plan.parallelizers;
  attached.transforms = ordered_transforms(plan);
  auto layout = std::make_shared<SideLayout>();
  each_module(units, [&](Module& module) {
    for (SideOutput* output : module.side_outputs()) layout->add(*output);
    if (module.traits().role != Role::embedding) return;
    for (const ParameterSlot& slot : module.slots())
      if (slot.tensor->dim() > 0) attached.most_tokens = std::max(attached.most_tokens, slot.tensor->size(0));
  });
  for (const auto& parallelizer : plan.parallelizers)
    for (SideOutput* output : parallelizer->side_outputs()) layout->add(*output);
  attached.side_outputs = std::move(layout);
  return attached;
}

std::vector<UpdateListener> listeners(const Units& units) {
  std::vector<UpdateListener> out;
  std::map<const at::Tensor*, std::string> names;
  for (const auto& unit : units) {
    if (auto* told = dynamic_cast<AfterUpdate*>(unit.get()); told != nullptr && told->wants_updates())
      out.push_back({told});
    for (const ParameterSlot& slot : unit->parameters()) names.emplace(slot.tensor, slot.name);
  }
  each_module(units, [&](Module& module) {
    auto* told = dynamic_cast<AfterUpdate*>(&module);
    if (told == nullptr || !told->wants_updates()) return;
    UpdateListener& listener = out.emplace_back(UpdateListener{told});
    for (const ParameterSlot& slot : module.slots())
      if (!slot.trainable()) listener.frozen.push_back(names.at(slot.tensor));
  });
  return out;
}

}  // namespace heddle::parallel
