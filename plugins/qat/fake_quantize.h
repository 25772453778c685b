// Numbers that are rounded to a few integers and back, with the numbers of torchao's fake quantizers. A
// gradient passes as if nothing were rounded, where the integer is in range (Bengio et al. 2013).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace heddle::qat {

// How weights [out, in] are rounded: each group of a row has a scale.
struct WeightForm {
  // -8 to 7 times a scale (max |w| / 7.5); else 0 to 15 times a scale ((max - min) / 15), from the least
  // number of the group.
  bool symmetric = true;
  int64_t group = 256;                    // numbers of a row; divides `in`
  at::ScalarType scales = at::kBFloat16;  // to which scales and zero points are rounded
};

struct FakeQuantized {
  at::Tensor value;  // as the input: sizes and dtype
  // Of the gradient; for weights in groups, [out, groups, group] and [out, groups, 1].
  at::Tensor outside;  // bool: the integer was out of range, and was clamped
  at::Tensor scale,
      inverse;  // of each row or group; inverse undefined: the numbers were divided by the scale
};

// x [tokens, in]: each row is rounded to -128 to 127 with a scale and a zero point of its own, so that 0
// stays 0. Scales are computed in the dtype of x and kept in float32. Below autograd.
FakeQuantized rounded_tokens(const at::Tensor& x);

// The same for a weight. Scales are computed in its dtype.
FakeQuantized rounded_weight(const at::Tensor& weight, const WeightForm& form);

// The gradient of the input from that of the value. Scales and zero points have none. Each product is rounded
// to the dtype that torchao's has: scale times inverse is not 1 where scales are in bfloat16.
at::Tensor through(const FakeQuantized& rounded, const at::Tensor& gradient);

}  // namespace heddle::qat
