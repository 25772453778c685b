// What stands between the products of an MLP, each one autograd node that keeps its inputs only.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"

namespace heddle::model {

enum class Activation { silu, gelu, gelu_tanh, relu, relu2 };

// silu(gate) * up: the gated unit of Llama's MLP (Shazeer 2020). gate and up of one shape and dtype; returns
// the same shape.
HEDDLE_API at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

// activation(gate) * up; of silu it is swiglu().
HEDDLE_API at::Tensor gated(Activation activation, const at::Tensor& gate, const at::Tensor& up);

// activation(gate), of at most `limit`, times up within -limit .. limit (Step-3.5). before: the gate is
// limited before its activation (DeepSeek-V4). One node.
HEDDLE_API at::Tensor gated_within(double limit, Activation activation, const at::Tensor& gate,
                                   const at::Tensor& up, bool before = false);

HEDDLE_API at::Tensor activated(Activation activation, const at::Tensor& x);

// A gated unit whose gate and up are bounded softly (SiTU, Kimi K3): beta tanh(gate / beta) sigmoid(gate)
// times bound tanh(up / bound).
struct Situ {
  double beta = 1;   // above 0
  double bound = 0;  // 0: up as it is
  bool operator==(const Situ&) const = default;
};

// In fp32 (fp64 for fp64), rounded once. gate and up of one shape and dtype; returns the same shape. One
// node.
HEDDLE_API at::Tensor gated_by_situ(const Situ& form, const at::Tensor& gate, const at::Tensor& up);

}  // namespace heddle::model
