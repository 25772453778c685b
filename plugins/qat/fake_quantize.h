// Fake quantization with the results of torchao's fake quantizers. The gradient passes through unchanged
// where the integer is in range (Bengio et al. 2013).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace heddle::qat {

// Quantization of weights [out, in]: each group of a row has a scale.
struct WeightForm {
  // true: integers from -8 to 7 times a scale (max |w| / 7.5). false: integers from 0 to 15 times a scale
  // ((max - min) / 15), offset by the group's minimum.
  bool symmetric = true;
  int64_t group = 256;                    // elements of a row per group; divides `in`
  at::ScalarType scales = at::kBFloat16;  // dtype of scales and zero points
};

struct FakeQuantized {
  at::Tensor value;  // with the sizes and dtype of the input
  // For the gradient. For weights in groups: [out, groups, group] and [out, groups, 1].
  at::Tensor outside;  // bool: the integer was out of range and was clamped
  at::Tensor scale,
      inverse;  // per row or group; undefined: values were divided by the scale
};

// Quantizes x [tokens, in]: each row to integers from -128 to 127 with its own scale and zero point, so that
// 0 stays 0. Scales are computed in the dtype of x and stored as float32. Not recorded by autograd.
FakeQuantized rounded_tokens(const at::Tensor& x);

// Quantizes a weight. Scales are computed in its dtype.
FakeQuantized rounded_weight(const at::Tensor& weight, const WeightForm& form);

// Returns the gradient of the input from that of the value. Scales and zero points get no gradient. Each
// product is rounded to torchao's dtype: scale * inverse is not 1 for scales in bfloat16.
at::Tensor through(const FakeQuantized& rounded, const at::Tensor& gradient);

}  // namespace heddle::qat
