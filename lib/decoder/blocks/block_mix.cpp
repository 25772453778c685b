// Weighted sum of values by a softmax over their scores.
#include "lib/decoder/blocks/block_mix.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>

#include <vector>

#include "heddle/model/autograd_node.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

at::Tensor mixed(std::span<const at::Tensor> values, const at::Tensor& norm, const at::Tensor& proj,
                 double eps) {
  const at::ScalarType wide = model::accumulation_dtype(values[0].scalar_type());
  const at::Tensor weight = norm.to(wide) * proj.to(wide).squeeze(0);
  std::vector<at::Tensor> scores;  // [tokens]
  for (const at::Tensor& one : values) {
    const at::Tensor value = one.to(wide);
    scores.push_back(at::mv(value, weight) * (value * value).mean(-1).add_(eps).rsqrt_());
  }
  const at::Tensor shares = at::softmax(at::stack(scores, 1), -1);  // [tokens, values]
  at::Tensor sum = values[0] * shares.narrow(1, 0, 1);
  for (size_t j = 1; j < values.size(); ++j)
    sum.addcmul_(values[j].to(wide), shares.narrow(1, static_cast<int64_t>(j), 1));
  return sum.to(values[0].scalar_type());
}

}  // namespace

at::Tensor block_mix(std::span<const at::Tensor> values, const at::Tensor& norm, const at::Tensor& proj,
                     double eps) {
  return model::recomputed("BlockMixBackward", {values.begin(), values.end()}, {norm, proj},
                           [eps](std::span<const at::Tensor> in, bool) {
                             return mixed(in.first(in.size() - 2), in[in.size() - 2], in.back(), eps);
                           });
}

}  // namespace heddle::decoder
