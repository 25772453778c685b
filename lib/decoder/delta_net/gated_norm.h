// The norm of heads with a gate (Qwen3-Next): weight * normalised * silu(gate).
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"
#include "heddle/model/module.h"

namespace heddle::decoder {

// x, gate [tokens, heads * width], weight [width]: each head is normalised by its root mean square, in fp32
// (fp64 for fp64), and rounded to x's dtype before it is multiplied by the weight, as transformers'
// Qwen3NextRMSNormGated does. One node, which keeps x and the gate.
HEDDLE_API at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                                 double eps);

// Slot "weight" [width], initialised with ones.
class GatedNorm : public Module {
 public:
  GatedNorm(int64_t width, double eps, const at::TensorOptions& options);
  std::string_view kind() const override { return "gated_norm"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::norm}; }
  at::Tensor apply(const at::Tensor& x, const at::Tensor& gate, const Batch& batch);

  at::Tensor weight;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;  // refused: apply() takes two tensors

 private:
  double eps_;
};

}  // namespace heddle::decoder
