// MLP activations by plain operators.
#pragma once

#include <ATen/ATen.h>

#include <cmath>

#include "heddle/nn/activation.h"

namespace heddle::tests {

inline at::Tensor plain_activation(model::Activation activation, const at::Tensor& x) {
  switch (activation) {
    case model::Activation::silu:
      return x * at::sigmoid(x);
    case model::Activation::gelu:
      return at::gelu(x);
    case model::Activation::gelu_tanh:
      return 0.5 * x * (1 + at::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))));
    case model::Activation::relu:
      return at::clamp_min(x, 0);
    case model::Activation::relu2:
      return at::clamp_min(x, 0).square();
  }
  return x;
}

inline at::Tensor plain_situ(const model::Situ& form, const at::Tensor& gate, const at::Tensor& up) {
  const auto bounded = [](const at::Tensor& x, double by) { return by == 0 ? x : at::tanh(x / by) * by; };
  return bounded(gate, form.beta) * at::sigmoid(gate) * bounded(up, form.bound);
}

}  // namespace heddle::tests
