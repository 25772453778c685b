// The weights of hyper-connections and their gradients.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>

#include <utility>
#include <vector>

#include "heddle/model/autograd_node.h"
#include "lib/decoder/streams/hyper_connection.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

using model::Gradients;
using model::wide_of;

// All wide.
struct Inputs {
  at::Tensor x, root;  // normalised, and 1 / the root mean square
  at::Tensor mix, base, scale, products;
};

Inputs wide_inputs(const at::Tensor& x, const at::Tensor& mix, const at::Tensor& base,
                   const at::Tensor& scale, double eps) {
  const at::ScalarType wide = wide_of(x.scalar_type());
  const at::Tensor all = x.to(wide);
  const at::Tensor root = (all * all).mean(-1, true).add_(eps).rsqrt_();
  Inputs in{all * root, root, mix.to(wide), base.to(wide), scale.to(wide), {}};
  in.products = at::matmul(in.x, in.mix.t());
  return in;
}

// Weights of the part that begins at `first`, before its function.
at::Tensor score(const Inputs& in, int64_t part, int64_t first, int64_t count) {
  return in.products.narrow(1, first, count) * in.scale[part] + in.base.narrow(0, first, count);
}

// What Sinkhorn and Knopp divide, one after the other, and by what: dims 1 (columns) and 2 in turn.
struct Division {
  int64_t dim;
  at::Tensor quotient, sum;
};

std::vector<Division> doubly_stochastic(at::Tensor matrix, const HyperConnections& form) {
  std::vector<Division> out;
  const auto divide = [&](int64_t dim) {
    const at::Tensor sum = matrix.sum(dim, true) + form.eps;
    matrix = matrix / sum;
    out.push_back({dim, matrix, sum});
  };
  divide(1);
  for (int64_t i = 1; i < form.iterations; ++i) divide(2), divide(1);
  return out;
}

at::Tensor softmax_of(const Inputs& in, int64_t n) {
  return at::softmax(score(in, 2, 2 * n, n * n).view({-1, n, n}), -1);
}

at::Tensor weights_of(const Inputs& in, const HyperConnections& form) {
  const int64_t n = form.streams;
  const at::Tensor pre = at::sigmoid(score(in, 0, 0, n)) + form.eps;
  if (in.base.size(0) == n) return pre;
  const at::Tensor post = at::sigmoid(score(in, 1, n, n)) * 2;
  const at::Tensor matrix = doubly_stochastic(softmax_of(in, n) + form.eps, form).back().quotient;
  return at::cat({pre, post, matrix.flatten(1)}, 1);
}

// The gradient of the scores of the matrix.
at::Tensor back_through_matrix(at::Tensor d, const Inputs& in, const HyperConnections& form) {
  const at::Tensor first = softmax_of(in, form.streams);
  const std::vector<Division> divisions = doubly_stochastic(first + form.eps, form);
  d = d.reshape(first.sizes());
  for (auto at = divisions.rbegin(); at != divisions.rend(); ++at)
    d = (d - (d * at->quotient).sum(at->dim, true)) / at->sum;
  return (first * (d - (d * first).sum(-1, true))).flatten(1);
}

at::Tensor back_through_sigmoid(const at::Tensor& d, const at::Tensor& scores, double factor) {
  const at::Tensor y = at::sigmoid(scores);
  return d * y * (1 - y) * factor;
}

// Of the scores of each part, in their order.
std::vector<at::Tensor> score_gradients(const at::Tensor& d, const Inputs& in, const HyperConnections& form) {
  const int64_t n = form.streams;
  std::vector<at::Tensor> out{back_through_sigmoid(d.narrow(1, 0, n), score(in, 0, 0, n), 1)};
  if (in.base.size(0) == n) return out;
  out.push_back(back_through_sigmoid(d.narrow(1, n, n), score(in, 1, n, n), 2));
  out.push_back(back_through_matrix(d.narrow(1, 2 * n, n * n), in, form));
  return out;
}

// Edges: x, mix, base, scale.
struct HyperWeightsNode final : model::LayerNode {
  HyperWeightsNode() : LayerNode("HyperWeightsBackward") {}
  model::Saved x, mix, base, scale;
  HyperConnections form;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor saved = x.unpack(), m = mix.unpack(), b = base.unpack(), s = scale.unpack();
    const Inputs in = wide_inputs(saved, m, b, s, form.norm_eps);
    const std::vector<at::Tensor> parts = score_gradients(gradients[0].to(in.x.scalar_type()), in, form);
    std::vector<at::Tensor> scaled, of_scale;
    int64_t first = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t count = parts[i].size(1);
      scaled.push_back(parts[i] * in.scale[static_cast<int64_t>(i)]);
      of_scale.push_back((parts[i] * in.products.narrow(1, first, count)).sum());
      first += count;
    }
    const at::Tensor d = at::cat(scaled, 1);
    const at::Tensor dx = at::matmul(d, in.mix);
    Gradients out(4);
    out[0] = ((dx - in.x * (dx * in.x).mean(-1, true)) * in.root).to(saved.scalar_type());
    out[1] = at::matmul(d.t(), in.x).to(m.scalar_type());
    out[2] = at::cat(parts, 1).sum(0).to(b.scalar_type());
    out[3] = at::stack(of_scale).to(s.scalar_type());
    return out;
  }
  void release_variables() override {
    for (model::Saved* one : {&x, &mix, &base, &scale}) one->reset();
  }
};

}  // namespace

at::Tensor hyper_weights(const at::Tensor& x, const at::Tensor& mix, const at::Tensor& base,
                         const at::Tensor& scale, const HyperConnections& form) {
  const auto save = [&](HyperWeightsNode& node) {
    node.x.save(x);
    node.mix.save_weight(mix);
    node.base.save_weight(base);
    node.scale.save_weight(scale);
    node.form = form;
  };
  const auto compute = [&] { return weights_of(wide_inputs(x, mix, base, scale, form.norm_eps), form); };
  return model::forward_with<HyperWeightsNode>(save, compute, x, mix, base, scale);
}

}  // namespace heddle::decoder
