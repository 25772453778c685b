// Weights of hyper-connections.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>

#include "heddle/model/autograd_node.h"
#include "lib/decoder/streams/hyper_connection.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

// Divides columns, then alternately rows and columns, by their sums (Sinkhorn and Knopp).
at::Tensor doubly_stochastic(at::Tensor matrix, const HyperConnections& form) {
  matrix = matrix / (matrix.sum(1, true) + form.eps);
  for (int64_t i = 1; i < form.iterations; ++i)
    for (const int64_t dim : {2, 1}) matrix = matrix / (matrix.sum(dim, true) + form.eps);
  return matrix;
}

// All tensors are in the accumulation dtype.
at::Tensor weights_of(const at::Tensor& x, const at::Tensor& mix, const at::Tensor& base,
                      const at::Tensor& scale, const HyperConnections& form) {
  const int64_t n = form.streams;
  const at::Tensor root = (x * x).mean(-1, true).add_(form.norm_eps).rsqrt_();
  const at::Tensor products = at::matmul(x * root, mix.t());
  const auto score = [&](int64_t part, int64_t first, int64_t count) {
    return products.narrow(1, first, count) * scale[part] + base.narrow(0, first, count);
  };
  const at::Tensor pre = at::sigmoid(score(0, 0, n)) + form.eps;
  if (base.size(0) == n) return pre;
  const at::Tensor post = at::sigmoid(score(1, n, n)) * 2;
  const at::Tensor matrix = at::softmax(score(2, 2 * n, n * n).view({-1, n, n}), -1);
  return at::cat({pre, post, doubly_stochastic(matrix + form.eps, form).flatten(1)}, 1);
}

}  // namespace

at::Tensor hyper_weights(const at::Tensor& x, const at::Tensor& mix, const at::Tensor& base,
                         const at::Tensor& scale, const HyperConnections& form) {
  return model::recomputed(
      "HyperWeightsBackward", {x}, {mix, base, scale}, [form](std::span<const at::Tensor> in, bool) {
        const at::ScalarType wide = model::accumulation_dtype(in[0].scalar_type());
        return weights_of(in[0].to(wide), in[1].to(wide), in[2].to(wide), in[3].to(wide), form);
      });
}

}  // namespace heddle::decoder
