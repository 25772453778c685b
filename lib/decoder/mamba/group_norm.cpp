// Group norm after a gate.
#include "lib/decoder/mamba/group_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/silu.h>

#include "heddle/model/autograd_node.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

using model::accumulation_dtype;

// Returns [tokens, groups, group] in the accumulation dtype.
at::Tensor by_groups(const at::Tensor& x, int64_t group) {
  return x.reshape({x.size(0), -1, group}).to(accumulation_dtype(x.scalar_type()));
}

}  // namespace

at::Tensor gated_group_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                            int64_t group, double eps) {
  const auto formula = [group, eps](std::span<const at::Tensor> in, bool backward) {
    const at::Tensor gated = by_groups(in[0], group) * at::silu(by_groups(in[1], group));
    const at::Tensor normal = gated * (gated * gated).mean(-1, true).add_(eps).rsqrt_();
    if (!backward) return normal.to(in[0].scalar_type()).flatten(1) * in[2];
    return (normal.flatten(1) * in[2].to(normal.scalar_type())).to(in[0].scalar_type());
  };
  return model::recomputed("GatedGroupNormBackward", {x, gate}, {weight}, formula);
}

}  // namespace heddle::decoder
