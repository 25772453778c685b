// Two linear layers with one input, computed together.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/sum.h>

#include <string_view>

#include "heddle/nn/linear.h"

namespace heddle::tests {

// Maps x [tokens, in] to the sum of squares and cubes of the outputs, so that gradients of the layers differ.
class LayerPair : public Module {
 public:
  LayerPair(int64_t in, Linear::Bias bias, const at::TensorOptions& options)
      : a(in, 5, bias, {}, options), b(in, 4, Linear::Bias::none, {}, options) {
    add_child("a_proj", a);
    add_child("b_proj", b);
  }
  std::string_view kind() const override { return "pair"; }
  Linear a, b;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    const model::FewTensors both = model::call_each({&a, &b}, x, batch);
    return (both[0] * both[0]).sum() + (both[1] * both[1] * both[1]).sum();
  }
};

}  // namespace heddle::tests
