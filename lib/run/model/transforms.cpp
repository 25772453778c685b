// Makes transforms from their sections and checks what they do not support.
#include "lib/run/model/transforms.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "heddle/base/error.h"

namespace heddle {
namespace {

const OfferedTransform* transform_of(const PluginSection& section) {
  if (section.kind != OfferedTransform::kKind) return nullptr;
  return static_cast<const OfferedTransform*>(section.offered);
}

// Returns the shard from which `box` is derived.
Shard origin_of(const Shard& box, const Derived& derived) {
  Shard out;
  out.name = derived.from;
  out.shape = derived.shape;
  out.offset.assign(derived.shape.size(), 0);
  out.init = derived.init;
  std::vector<int64_t> sizes = derived.shape;
  if (derived.by_rows) {
    out.offset[0] = box.offset[0];
    sizes[0] = box.tensor.size(0);
  }
  const c10::Device device = box.tensor.is_meta() ? c10::Device(at::kMeta) : c10::Device(at::kCPU);
  out.tensor = at::empty(sizes, at::TensorOptions().dtype(derived.dtype).device(device));
  return out;
}

// Returns the section of the transform's other model, as given; null: none.
Node other_of(const OfferedTransform& offered, const PluginSection& section) {
  if (offered.model_field.empty()) return {};
  if (offered.model_field == section.name) return section.node;
  const Node* field = section.node.is_map() ? section.node.find(offered.model_field) : nullptr;
  return field == nullptr ? Node() : *field;
}

}  // namespace

std::vector<Node> other_models(const std::vector<PluginSection>& sections) {
  std::vector<Node> out;
  for (const PluginSection& section : sections)
    if (const OfferedTransform* offered = transform_of(section))
      if (Node other = other_of(*offered, section); !other.is_null()) out.push_back(std::move(other));
  return out;
}

std::vector<ActiveTransform> make_transforms(const std::vector<PluginSection>& sections, uint64_t seed) {
  std::vector<std::pair<int, ActiveTransform>> ordered;
  for (const PluginSection& section : sections) {
    const OfferedTransform* offered = transform_of(section);
    // a transform that is not built is reported elsewhere by its name
    if (offered == nullptr || !offered->make) continue;
    ActiveTransform one;
    one.name = section.name;
    one.run.where = section.node.where();
    one.run.seed = seed;
    one.transform = offered->make(section.values);
    one.other_model = other_of(*offered, section);
    one.setting = one.transform->setting();
    if (one.setting.empty()) one.setting = config::to_json(section.values);
    ordered.emplace_back(offered->order, std::move(one));
  }
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second.name) < std::pair(b.first, b.second.name);
  });
  std::vector<ActiveTransform> out;
  for (auto& [order, one] : ordered) out.push_back(std::move(one));
  return out;
}

void refuse_axes(const std::vector<PluginSection>& sections, const Setup& setup) {
  const Node* distributed = setup.configuration.find("distributed");
  for (const PluginSection& section : sections) {
    const OfferedTransform* offered = transform_of(section);
    if (offered == nullptr) continue;
    for (const Refusal& refusal : offered->refuses) {
      const AxisInfo* axis = setup.axis_table.find(refusal.axis);
      if (axis == nullptr || setup.sizes.of(refusal.axis) == 1) continue;
      const Node* given = distributed == nullptr ? nullptr : distributed->find(axis->key);
      throw Error(ErrorCode::config, given == nullptr ? "distributed." + axis->key : given->where(),
                  refusal.text,
                  "the section " + section.name + " does not support it: set " +
                      (axis->key.empty() ? axis->name : axis->key) + ": 1, or remove " + section.name);
    }
  }
}

ParameterSource with_derived(ParameterSource base, const std::vector<Transformed>& changes, uint64_t seed) {
  const auto all = std::make_shared<std::map<std::string, Derived>>();
  for (const Transformed& one : changes) all->insert(one.derived.begin(), one.derived.end());
  if (all->empty()) return base;
  return [base = std::move(base), all, seed](const Shard& shard) {
    const auto found = all->find(shard.name);
    if (found == all->end()) return base && base(shard);
    if (shard.tensor.numel() == 0) return true;
    const at::NoGradGuard no_gradients;
    const Shard from = origin_of(shard, found->second);
    const bool is_read = base && base(from);
    if (from.tensor.is_meta()) return true;
    if (!is_read) parallel::initialise(from, seed);
    found->second.fill(shard, from.tensor);
    return true;
  };
}

}  // namespace heddle
