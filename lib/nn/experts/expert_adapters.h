// Adapters of experts as grouped products of a low rank beside those of the base. Below autograd.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "heddle/model/autocast.h"
#include "heddle/model/autograd_node.h"
#include "heddle/nn/experts.h"
#include "lib/nn/experts/grouped_product.h"

namespace heddle::model {

inline at::Tensor cast_to(const at::Tensor& gradient, at::ScalarType dtype) {
  return gradient.scalar_type() == dtype ? gradient : gradient.to(dtype);
}

inline at::Tensor used_weight(Autocast* autocast, const at::Tensor& weight) {
  return autocast == nullptr || !weight.defined() ? weight : autocast->weight(weight);
}

// Columns as a dim of their own become one with the width.
inline at::Tensor as_matrices(const at::Tensor& gate_up) {
  return gate_up.dim() == 4 ? gate_up.flatten(1, 2) : gate_up;
}

inline at::Tensor as_rows(const at::Tensor& bias) {
  return bias.defined() && bias.dim() == 3 ? bias.flatten(1, 2) : bias;
}

// The router's weight of each row, in wide arithmetic.
inline at::Tensor weights_of_rows(const at::Tensor& weights, const ExpertRows& rows, at::ScalarType wide) {
  if (weights.is_meta()) return at::empty({rows.count()}, weights.options().dtype(wide).requires_grad(false));
  return at::index_select(weights.reshape({-1}), 0, rows.slots).to(wide);
}

inline at::Tensor shared_bias(const at::Tensor& bias, double share) {
  return share == 1 || !bias.defined() ? bias : bias * share;
}

// Returns the given products, or the device's.
inline const ExpertProducts& products_of(const std::shared_ptr<const ExpertProducts>& products) {
  static const ExpertProducts as_they_are;
  return products ? *products : as_they_are;
}

// Factors of the gradients of both parameters.
struct Factors {
  at::Tensor x, d_hidden, activated, dy;  // [tokens, hidden], [rows, ...], [rows, width], [rows, hidden]
  at::Tensor shares;                      // [rows]: the router's weights
  std::shared_ptr<const ExpertRows> rows;
  std::shared_ptr<const ExpertProducts> products;
  at::ScalarType dtype{};      // of the parameters
  std::vector<int64_t> shape;  // of gate_up
  double bias_share = 1;

  at::Tensor of_gate_up() const { return of_weights(d_hidden, take_rows(x, *rows)).view(shape); }
  at::Tensor of_down() const { return of_weights(dy, activated); }
  at::Tensor of_weights(const at::Tensor& gradient, const at::Tensor& input) const {
    return cast_to(products_of(products).weight_gradient(gradient, input, rows->begins), dtype);
  }
  at::Tensor of_gate_up_bias() const {
    const at::IntArrayRef of_weights = shape;
    return cast_to(grouped_sum(d_hidden, rows->begins), dtype).view(of_weights.slice(0, shape.size() - 1));
  }
  at::Tensor of_down_bias() const {
    return cast_to(grouped_sum(dy, rows->begins, bias_share == 1 ? shares : shares * bias_share), dtype);
  }

  // By the edge of ExpertsNode.
  at::Tensor of(size_t edge) const {
    return edge == 2 ? of_gate_up() : edge == 3 ? of_down() : edge == 4 ? of_gate_up_bias() : of_down_bias();
  }
};

// The adapter of one product: A [experts, rank, in], B [experts, out, rank].
struct ExpertAdapter {
  at::Tensor a, b;
  double scale = 1;
};

// onto += scale * B (A x), by expert: x [rows, in], onto [rows, out].
void add_adapter(at::Tensor& onto, const at::Tensor& x, const ExpertAdapter& adapter,
                 std::span<const int64_t> begins);

// dx += the adapter's part of the gradient of x. Returns what A's gradient is made of, [rows, rank].
at::Tensor add_adapter_back(at::Tensor& dx, const at::Tensor& dy, const ExpertAdapter& adapter,
                            std::span<const int64_t> begins);

// `back`: of add_adapter_back().
at::Tensor gradient_of_a(const at::Tensor& back, const at::Tensor& x, std::span<const int64_t> begins);
at::Tensor gradient_of_b(const at::Tensor& dy, const at::Tensor& x, const ExpertAdapter& adapter,
                         std::span<const int64_t> begins);

// An adapter as a node keeps it for the backward.
struct SavedAdapter {
  Saved a, b;
  double scale = 1;

  void save(const ExpertAdapter& adapter);
  // In the dtype of the computation.
  ExpertAdapter unpack(Autocast* autocast);
  void reset();
};

}  // namespace heddle::model
