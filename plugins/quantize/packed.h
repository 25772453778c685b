// The 4-bit form of a weight: NF4 codes in blocks of 64 (Dettmers et al. 2023), with the numbers of
// bitsandbytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

namespace heddle::quantize {

constexpr int64_t kBlock = 64;  // numbers with one scale, in row order over the whole weight
constexpr int64_t kRow = 64;    // bytes of a row of the packed tensor

// The 16 values of NF4, ascending.
extern const std::array<float, 16> kCodes;

// Of one weight [out, in]. Packed it is bytes [rows(), 64]: two codes a byte, the first in the high half;
// then the scales; then the values of both codes in float32, so that a device needs no table from the host.
// With double quantisation a scale is a byte of the 8-bit dynamic code for the difference from the mean of
// all scales; a float32 for each 256 of them and that mean follow.
struct Form {
  int64_t out = 0, in = 0;
  at::ScalarType stored = at::kFloat;  // of the weight that was read: unpacked numbers are rounded to it
  bool double_quant = true;

  int64_t numbers() const { return out * in; }
  int64_t blocks() const { return (numbers() + kBlock - 1) / kBlock; }
  int64_t groups() const;     // of scales
  int64_t scales_at() const;  // offsets in bytes
  int64_t groups_at() const;  // of the float32 numbers of groups, and after them the mean
  int64_t tables_at() const;  // of the 16 values of NF4 and the 256 of the dynamic code
  int64_t rows() const;
};

// weight [out, in], on the CPU; returns bytes on the CPU. Throws Error{input} for inf and nan.
at::Tensor pack(const at::Tensor& weight, const Form& form);

// The scale of each block, float32 [blocks], from packed bytes on the CPU.
std::vector<float> scales_of(const uint8_t* packed, const Form& form);

// The weight [out, in] in `dtype`, on the device of the bytes; below autograd. On the CPU by loops, elsewhere
// by unpack_by_operators().
at::Tensor unpack(const at::Tensor& packed, const Form& form, at::ScalarType dtype);
at::Tensor unpack_by_operators(const at::Tensor& packed, const Form& form, at::ScalarType dtype);

}  // namespace heddle::quantize
