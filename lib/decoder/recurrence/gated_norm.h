// Head norm followed by a gate: weight * normalized * silu(gate) (Qwen3-Next, Falcon-H1), or with a sigmoid
// (Kimi Linear).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"
#include "heddle/model/module.h"

namespace heddle::decoder {

struct GatedNormForm {
  double eps = 1e-6;
  int64_t group = 0;     // elements that are normalized together, a divisor of the weights; 0: all
  bool sigmoid = false;  // sigmoid of the gate; else silu
  bool rounded = true;   // round normalized values to x's dtype before the weight; else at the end
};

// x, gate [tokens, heads * width], weight [width]. Each group is divided by its root mean square in fp32
// (fp64 for fp64), and heads share the weights. One autograd node, which keeps x and the gate.
HEDDLE_API at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                                 const GatedNormForm& form);

// Slot "weight" [width], initialized with ones.
class GatedNorm : public Module {
 public:
  GatedNorm(int64_t width, const GatedNormForm& form, const at::TensorOptions& options);
  std::string_view kind() const override { return "gated_norm"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .role = Role::norm}; }
  at::Tensor apply(const at::Tensor& x, const at::Tensor& gate, const Batch& batch);

  at::Tensor weight;

 protected:
  // throws: use apply(), which takes two tensors
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  GatedNormForm form_;
};

}  // namespace heddle::decoder
