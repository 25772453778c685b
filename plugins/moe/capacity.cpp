// Expert capacity: choices in order of preference, sorted by expert, of which each expert keeps the first
// `most`.
#include "capacity.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>

#include "heddle/model/autograd_node.h"

namespace heddle::moe {

int64_t capacity_of(int64_t tokens, int64_t top_k, int64_t experts, double factor) {
  const double room = static_cast<double>(tokens * top_k) / static_cast<double>(experts) * factor;
  // An expert gets at most every token once.
  return static_cast<int64_t>(
      std::clamp(std::ceil(room), 1.0, static_cast<double>(std::max<int64_t>(1, tokens))));
}

model::Routing within_capacity(const model::Routing& routing, int64_t experts, int64_t most, Keeps keeps) {
  if (routing.experts.is_meta() || routing.experts.numel() == 0) return routing;
  const model::BelowAutograd below;
  const at::Tensor flat = routing.experts.reshape({-1});
  at::Tensor preferred = at::arange(flat.numel(), flat.options());
  if (keeps == Keeps::largest_weights)
    preferred = std::get<1>(at::sort(routing.weights.reshape({-1}), /*stable=*/true, 0, /*descending=*/true));
  // Keeps this order within each expert.
  const auto [sorted, order] = at::sort(at::index_select(flat, 0, preferred), /*stable=*/true, 0, false);
  const at::Tensor first = at::searchsorted(sorted, sorted);
  const at::Tensor place = at::arange(flat.numel(), flat.options()) - first;
  const at::Tensor kept = at::where(place < most, sorted, -1);
  const at::Tensor out = at::empty_like(flat);
  out.index_copy_(0, at::index_select(preferred, 0, order), kept);
  return {out.view(routing.experts.sizes()), routing.weights};
}

}  // namespace heddle::moe
