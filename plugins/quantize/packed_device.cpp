// Unpacking with LibTorch's operators, on any device.
#include <ATen/TensorOperators.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>

#include "packed.h"
#include "scales.h"

namespace heddle::quantize {
namespace {

// Reads float32 values from the bytes.
at::Tensor floats_in(const at::Tensor& bytes, int64_t at, size_t count) {
  return bytes.narrow(0, at, static_cast<int64_t>(count * sizeof(float))).clone().view(at::kFloat);
}

at::Tensor scales_of(const at::Tensor& bytes, const Form& form) {
  const int64_t blocks = form.blocks();
  if (!form.double_quant) return floats_in(bytes, form.scales_at(), blocks);
  const at::Tensor codes = bytes.narrow(0, form.scales_at(), blocks).to(at::kInt);
  const int64_t count = form.groups();
  const at::Tensor all = floats_in(bytes, form.groups_at(), count + 1), groups = all.narrow(0, 0, count),
                   mean = all.narrow(0, count, 1);
  const at::Tensor dynamic_values =
      floats_in(bytes, form.tables_at() + static_cast<int64_t>(sizeof(kCodes)), dynamic_code().size());
  const at::Tensor each = groups.repeat_interleave(kGroup).narrow(0, 0, blocks);
  return at::index_select(dynamic_values, 0, codes) * each + mean;
}

}  // namespace

at::Tensor unpack_by_operators(const at::Tensor& packed, const Form& form, at::ScalarType dtype) {
  const at::Tensor bytes = packed.flatten();
  const int64_t blocks = form.blocks();
  const at::Tensor codes = bytes.narrow(0, 0, form.scales_at());
  const at::Tensor both =
      at::stack({at::bitwise_right_shift(codes, 4), at::bitwise_and(codes, 15)}, 1).flatten().to(at::kInt);
  const at::Tensor values =
      at::index_select(floats_in(bytes, form.tables_at(), kCodes.size()), 0, both).view({blocks, kBlock});
  const at::Tensor numbers = (values * scales_of(bytes, form).unsqueeze(1)).flatten();
  const at::Tensor weight = numbers.narrow(0, 0, form.numbers()).view({form.out, form.in});
  return weight.to(form.stored == at::kDouble ? at::kFloat : form.stored).to(dtype);
}

}  // namespace heddle::quantize
