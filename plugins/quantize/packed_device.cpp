// Unpacks by LibTorch's operators, on any device.
#include <ATen/TensorOperators.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>

#include <utility>

#include "packed.h"
#include "scales.h"

namespace heddle::quantize {
namespace {

// A table on the device of the bytes.
template <size_t N>
at::Tensor on_device(const std::array<float, N>& values, const at::Tensor& like) {
  const at::Tensor here =
      at::from_blob(const_cast<float*>(values.data()), {static_cast<int64_t>(N)}, at::kFloat);
  return here.to(like.device());
}

// float32 numbers that lie in the bytes.
at::Tensor floats_in(const at::Tensor& bytes, int64_t at, int64_t count) {
  return bytes.narrow(0, at, count * static_cast<int64_t>(sizeof(float))).contiguous().view(at::kFloat);
}

at::Tensor scales_of(const at::Tensor& bytes, const Form& form) {
  const int64_t blocks = form.blocks();
  if (!form.double_quant) return floats_in(bytes, form.scales_at(), blocks);
  const at::Tensor codes = bytes.narrow(0, form.scales_at(), blocks).to(at::kInt);
  const at::Tensor groups = floats_in(bytes, form.groups_at(), form.groups()),
                   mean = floats_in(bytes, form.groups_at() + form.groups() * 4, 1);
  const at::Tensor each = groups.repeat_interleave(kGroup).narrow(0, 0, blocks);
  return at::index_select(on_device(dynamic_code(), bytes), 0, codes) * each + mean;
}

}  // namespace

at::Tensor unpack_by_operators(const at::Tensor& packed, const Form& form, at::ScalarType dtype) {
  const at::Tensor bytes = packed.flatten();
  const int64_t blocks = form.blocks();
  const at::Tensor codes = bytes.narrow(0, 0, form.scales_at());
  const at::Tensor both =
      at::stack({at::bitwise_right_shift(codes, 4), at::bitwise_and(codes, 15)}, 1).flatten().to(at::kInt);
  const at::Tensor values = at::index_select(on_device(kCodes, bytes), 0, both).view({blocks, kBlock});
  const at::Tensor numbers = (values * scales_of(bytes, form).unsqueeze(1)).flatten();
  const at::Tensor weight = numbers.narrow(0, 0, form.numbers()).view({form.out, form.in});
  return weight.to(form.stored == at::kDouble ? at::kFloat : form.stored).to(dtype);
}

}  // namespace heddle::quantize
