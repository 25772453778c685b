// Fake quantization with LibTorch's operators, on any device and on meta.
#include "fake_quantize.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/round.h>

#include <limits>

namespace heddle::qat {
namespace {

// Smallest scale of a symmetric group: the smallest normal number of the dtype, for bfloat16 that of float32.
double least_scale(at::ScalarType dtype) {
  return dtype == at::kHalf ? 0x1p-14 : static_cast<double>(std::numeric_limits<float>::min());
}
constexpr double kLeastTokenScale = std::numeric_limits<float>::epsilon();
constexpr double kLeastRangeScale = 1e-6;

// Integers of x in groups, stored in the dtypes of x and of the scales.
struct Integers {
  at::Tensor clamped, outside;
};

Integers in_range(const at::Tensor& integers, double least, double most) {
  return {at::clamp(integers, least, most), integers.lt(least).bitwise_or_(integers.gt(most))};
}

// Computes (integer - zero) * scale. Each operation rounds to the input's dtype, as in torchao.
FakeQuantized symmetric_groups(const at::Tensor& groups, at::ScalarType scales) {
  const at::ScalarType dtype = groups.scalar_type();
  const at::Tensor most =
      at::maximum(at::amin(groups, -1, true).clamp_max_(0).neg_(), at::amax(groups, -1, true).clamp_min_(0));
  FakeQuantized out;
  out.scale = (most / 7.5).clamp_min_(least_scale(dtype)).to(scales);
  out.inverse = out.scale.reciprocal();
  const Integers integers = in_range(at::round(groups * out.inverse), -8, 7);
  out.outside = integers.outside;
  out.value = (integers.clamped.to(dtype) * out.scale).to(dtype);
  return out;
}

// The format of tinygemm: the zero point is a floating-point number, the value of the integer 8.
FakeQuantized ranged_groups(const at::Tensor& groups, at::ScalarType scales) {
  const at::ScalarType dtype = groups.scalar_type();
  const at::Tensor least = at::amin(groups, -1, true);
  const at::Tensor scale = ((at::amax(groups, -1, true) - least) / 15).clamp_min_(kLeastRangeScale);
  const at::Tensor zero = (least + scale * 8).to(scales);
  FakeQuantized out;
  out.scale = scale.to(scales);
  const Integers integers = in_range(at::round((groups - (zero - out.scale * 8)) / out.scale), 0, 15);
  out.outside = integers.outside;
  out.value = ((integers.clamped - 8).to(dtype) * out.scale).to(dtype).add_(zero);
  return out;
}

}  // namespace

FakeQuantized rounded_tokens(const at::Tensor& x) {
  const at::ScalarType dtype = x.scalar_type();
  const at::Tensor least = at::amin(x, -1, true).clamp_max_(0);
  const at::Tensor scale = ((at::amax(x, -1, true).clamp_min_(0) - least) / 255).clamp_min_(kLeastTokenScale);
  const at::Tensor zero = at::clamp(at::round(least / scale).neg_().sub_(128), -128, 127).to(at::kFloat);
  FakeQuantized out;
  out.scale = scale.to(at::kFloat);
  out.inverse = out.scale.reciprocal();
  const Integers integers = in_range(at::round(x * out.inverse).add_(zero), -128, 127);
  out.outside = integers.outside;
  out.value = (integers.clamped.to(dtype).sub_(zero.to(dtype)) * out.scale).to(dtype);
  return out;
}

FakeQuantized rounded_weight(const at::Tensor& weight, const WeightForm& form) {
  const at::Tensor groups = weight.reshape({weight.size(0), -1, form.group});
  FakeQuantized out =
      form.symmetric ? symmetric_groups(groups, form.scales) : ranged_groups(groups, form.scales);
  out.value = out.value.view(weight.sizes());
  return out;
}

at::Tensor through(const FakeQuantized& rounded, const at::Tensor& gradient) {
  const at::ScalarType dtype = gradient.scalar_type();
  const at::Tensor scaled =
      (gradient.reshape(rounded.outside.sizes()) * rounded.scale).to(dtype).masked_fill_(rounded.outside, 0);
  const at::Tensor out = rounded.inverse.defined() ? scaled * rounded.inverse : scaled / rounded.scale;
  return out.to(dtype).view(gradient.sizes());
}

}  // namespace heddle::qat
