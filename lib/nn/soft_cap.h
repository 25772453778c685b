// A soft cap of logits and its derivative, by blocks of rows.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

namespace heddle::model {

// Logits as cap * tanh(logits / cap), and the factor of their gradients.
class SoftCap {
 public:
  explicit SoftCap(double cap) : cap_(cap) {}
  at::Tensor apply(const at::Tensor& logits) {
    if (cap_ == 0) return logits;
    tanh_ = (logits / cap_).tanh_();
    return tanh_ * cap_;
  }
  // After apply(), of the same block.
  at::Tensor back(at::Tensor gradient) const {
    return cap_ == 0 ? gradient : gradient.mul_(1 - tanh_ * tanh_);
  }

 private:
  double cap_;
  at::Tensor tanh_;
};

}  // namespace heddle::model
