// Reads the parameter that others follow from into the CPU's memory, one at a time.
#include "lib/run/model/derived_values.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

namespace heddle {
namespace {

// What `box` follows from.
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

}  // namespace

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
