// Hyper-connections and block residuals, one operator after the other.
#include "decoder/plain_streams.h"

namespace heddle::tests {
namespace {

at::Tensor doubly_stochastic(const at::Tensor& scores, const decoder::HyperConnections& form) {
  at::Tensor matrix = at::softmax(scores.view({-1, form.streams, form.streams}), -1) + form.eps;
  matrix = matrix / (matrix.sum(-2, true) + form.eps);
  for (int64_t i = 1; i < form.iterations; ++i) {
    matrix = matrix / (matrix.sum(-1, true) + form.eps);
    matrix = matrix / (matrix.sum(-2, true) + form.eps);
  }
  return matrix;
}

}  // namespace

at::Tensor PlainStreams::scores(const at::Tensor& x, int64_t part, int64_t first, int64_t count) const {
  const at::Tensor root = (x.pow(2).mean(-1, true) + form.norm_eps).rsqrt();
  return at::matmul(x * root, fn.t()).narrow(1, first, count) * scale[part] + base.narrow(0, first, count);
}

at::Tensor PlainStreams::weights(const at::Tensor& x) const {
  const int64_t n = form.streams;
  const at::Tensor pre = at::sigmoid(scores(x, 0, 0, n)) + form.eps;
  if (base.size(0) == n) return pre;
  const at::Tensor post = 2 * at::sigmoid(scores(x, 1, n, n));
  return at::cat({pre, post, doubly_stochastic(scores(x, 2, 2 * n, n * n), form).flatten(1)}, 1);
}

at::Tensor PlainStreams::collapsed(const at::Tensor& x) const {
  const at::Tensor pre = at::sigmoid(scores(x, 0, 0, form.streams)) + form.eps;
  return (pre.unsqueeze(2) * x.view({x.size(0), form.streams, -1})).sum(1);
}

at::Tensor PlainStreams::expanded(const at::Tensor& x, const at::Tensor& y) const {
  const int64_t n = form.streams;
  const at::Tensor post = 2 * at::sigmoid(scores(x, 1, n, n));
  const at::Tensor matrix = doubly_stochastic(scores(x, 2, 2 * n, n * n), form);
  const at::Tensor mixed = at::matmul(matrix.transpose(1, 2), x.view({x.size(0), n, -1}));
  return (post.unsqueeze(2) * y.unsqueeze(1) + mixed).flatten(1);
}

at::Tensor plain_blocks(const std::vector<at::Tensor>& blocks, const at::Tensor& x, const at::Tensor& norm,
                        const at::Tensor& proj, double eps) {
  std::vector<at::Tensor> all = blocks;
  all.push_back(x);
  const at::Tensor values = at::stack(all, -2);
  const at::Tensor unit = values * (values.square().mean(-1, true) + eps).rsqrt();
  return (at::softmax(at::matmul(unit * norm, proj.t()), -2) * values).sum(-2);
}

}  // namespace heddle::tests
