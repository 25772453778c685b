// Collapses streams to the input of a module, and expands its output to the streams.
#include "lib/decoder/streams/hyper_connection.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "heddle/model/autograd_node.h"

namespace heddle::decoder {
namespace {

using model::Gradients;

at::Tensor by_stream(const at::Tensor& x, int64_t n) {
  return x.reshape({x.size(0), n, -1});
}

// Edges: x, weights.
struct HyperCollapsedNode final : model::LayerNode {
  HyperCollapsedNode() : LayerNode("HyperCollapsedBackward") {}
  model::Saved x, weights;
  int64_t streams = 1;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor saved = x.unpack(), w = weights.unpack();
    const at::Tensor d = gradients[0].to(w.scalar_type()).unsqueeze(1);
    at::Tensor dw = at::zeros_like(w);
    dw.narrow(1, 0, streams).copy_((d * by_stream(saved, streams)).sum(-1));
    return {(d * w.narrow(1, 0, streams).unsqueeze(2)).flatten(1).to(saved.scalar_type()), dw};
  }
  void release_variables() override {
    x.reset();
    weights.reset();
  }
};

// Returns post [tokens, n, 1] and the matrix [tokens, from, to], in the dtype of the streams.
at::Tensor post_of(const at::Tensor& weights, int64_t n, at::ScalarType dtype) {
  return weights.narrow(1, n, n).to(dtype).unsqueeze(2);
}

at::Tensor matrix_of(const at::Tensor& weights, int64_t n, at::ScalarType dtype) {
  return weights.narrow(1, 2 * n, n * n).to(dtype).reshape({-1, n, n});
}

// Edges: x, y, weights.
struct HyperExpandedNode final : model::LayerNode {
  HyperExpandedNode() : LayerNode("HyperExpandedBackward") {}
  model::Saved x, y, weights;
  int64_t streams = 1;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor in = x.unpack(), out = y.unpack(), w = weights.unpack();
    const int64_t n = streams;
    const at::Tensor d = by_stream(gradients[0], n), from = by_stream(in, n);
    const at::Tensor dx = at::bmm(matrix_of(w, n, in.scalar_type()), d).flatten(1);
    const at::Tensor dy = (post_of(w, n, in.scalar_type()) * d).sum(1);
    at::Tensor dw = at::zeros_like(w);
    dw.narrow(1, n, n).copy_((d * out.unsqueeze(1)).sum(-1));
    dw.narrow(1, 2 * n, n * n).copy_(at::bmm(from, d.transpose(1, 2)).flatten(1));
    return {dx, dy.to(out.scalar_type()), dw};
  }
  void release_variables() override {
    for (model::Saved* one : {&x, &y, &weights}) one->reset();
  }
};

}  // namespace

at::Tensor hyper_collapsed(const at::Tensor& x, const at::Tensor& weights, int64_t streams) {
  const auto save = [&](HyperCollapsedNode& node) {
    node.x.save(x);
    node.weights.save(weights);
    node.streams = streams;
  };
  const auto compute = [&] {
    const at::Tensor pre = weights.narrow(1, 0, streams).unsqueeze(2);
    return (pre * by_stream(x, streams)).sum(1).to(x.scalar_type());
  };
  return model::forward_with<HyperCollapsedNode>(save, compute, x, weights);
}

at::Tensor hyper_expanded(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weights,
                          int64_t streams) {
  const auto save = [&](HyperExpandedNode& node) {
    node.x.save(x);
    node.y.save(y);
    node.weights.save(weights);
    node.streams = streams;
  };
  const auto compute = [&] {
    const at::Tensor matrix = matrix_of(weights, streams, x.scalar_type()).transpose(1, 2);
    const at::Tensor post = post_of(weights, streams, x.scalar_type());
    return (post * y.unsqueeze(1) + at::bmm(matrix, by_stream(x, streams))).flatten(1);
  };
  return model::forward_with<HyperExpandedNode>(save, compute, x, y, weights);
}

}  // namespace heddle::decoder
