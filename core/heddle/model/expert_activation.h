// What stands between the two products of an expert, with the router's weight of each row.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "heddle/base/export.h"

namespace heddle::model {

struct ExpertActivation {
  enum class Kind {
    swiglu,          // silu(gate) * up
    clamped_swiglu,  // gate and up clamped, gate * sigmoid(alpha * gate) * (up + 1): gpt_oss
    geglu,           // gelu(gate) * up, the exact gelu
    relu2            // relu(x)^2, of one product of half the width
  } kind = Kind::swiglu;
  double alpha = 1.702, limit = 7.0;  // of clamped_swiglu
  // Columns of the first product for one of the second.
  int64_t columns() const { return kind == Kind::relu2 ? 1 : 2; }
  bool operator==(const ExpertActivation&) const = default;
};

// hidden [rows, 2 width] with the gate's columns before the up's (relu2: [rows, width]), weights [rows] in
// fp32 (fp64 for fp64): activation(hidden) * weight, [rows, width]. Below autograd.
HEDDLE_API at::Tensor activate(const ExpertActivation& how, const at::Tensor& hidden,
                               const at::Tensor& weights);

struct ActivationGradients {
  at::Tensor hidden, weights;  // of the inputs, in their dtypes
  at::Tensor y;                // the output, computed again
};
// dy [rows, width].
HEDDLE_API ActivationGradients activate_backward(const ExpertActivation& how, const at::Tensor& dy,
                                                 const at::Tensor& hidden, const at::Tensor& weights);

}  // namespace heddle::model
