// Activations of an MLP. Each is one autograd node that saves only its inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"

namespace heddle::model {

// Activation functions. relu2 is relu(x)^2.
enum class Activation { silu, gelu, gelu_tanh, relu, relu2 };

// Returns silu(gate) * up, the gated unit of Llama's MLP (Shazeer 2020). gate, up and the result have the
// same shape and dtype.
HEDDLE_API at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

// Returns activation(gate) * up. With silu it equals swiglu().
HEDDLE_API at::Tensor gated(Activation activation, const at::Tensor& gate, const at::Tensor& up);

// Returns min(activation(gate), limit) * clamp(up, -limit, limit) (Step-3.5). before: clamps the gate before
// its activation (DeepSeek-V4). One node.
HEDDLE_API at::Tensor gated_within(double limit, Activation activation, const at::Tensor& gate,
                                   const at::Tensor& up, bool before = false);

// Returns activation(x), in the shape and dtype of x.
HEDDLE_API at::Tensor activated(Activation activation, const at::Tensor& x);

// SiTU (Kimi K3), a gated unit with soft bounds: beta tanh(gate / beta) sigmoid(gate) * bound tanh(up /
// bound).
struct Situ {
  double beta = 1;   // above 0
  double bound = 0;  // 0: up is not bounded
  bool operator==(const Situ&) const = default;
};

// Computes in fp32 (fp64 for fp64) and rounds once. gate, up and the result have the same shape and dtype.
// One node.
HEDDLE_API at::Tensor gated_by_situ(const Situ& form, const at::Tensor& gate, const at::Tensor& up);

}  // namespace heddle::model
