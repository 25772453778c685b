// 4-bit format of a weight: NF4 codes in blocks of 64 (Dettmers et al. 2023), with the values of
// bitsandbytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

namespace heddle::quantize {

constexpr int64_t kBlock = 64;  // elements per scale, in row order over the whole weight
constexpr int64_t kRow = 64;    // bytes per row of the packed tensor

// The 16 values of NF4, in ascending order.
extern const std::array<float, 16> kCodes;

// Format of one weight [out, in]. The packed tensor is bytes [rows(), 64]: two codes per byte, the first in
// the high half, then the scales, then the values of both codes in float32, so that a device needs no table
// from the host. With double quantization a scale is a byte, the 8-bit dynamic code of its difference from
// the mean of all scales. A float32 per 256 scales and the mean follow.
struct Form {
  int64_t out = 0, in = 0;
  at::ScalarType stored = at::kFloat;  // dtype in files, to which unpacked values are rounded
  bool double_quant = true;

  int64_t numbers() const { return out * in; }
  int64_t blocks() const { return (numbers() + kBlock - 1) / kBlock; }
  int64_t groups() const;     // of scales
  int64_t scales_at() const;  // offsets in bytes
  int64_t groups_at() const;  // of the groups' float32 scales, followed by the mean
  int64_t tables_at() const;  // of the 16 values of NF4 and the 256 values of the dynamic code
  int64_t rows() const;
};

// Packs a weight [out, in] on the CPU. Returns bytes on the CPU. Throws Error{input} for inf and nan.
at::Tensor pack(const at::Tensor& weight, const Form& form);

// Returns the scale of each block, float32 [blocks], from packed bytes on the CPU.
std::vector<float> scales_of(const uint8_t* packed, const Form& form);

// Returns the weight [out, in] in `dtype`, on the device of the bytes. Uses loops on the CPU, and
// unpack_by_operators() on other devices. Not recorded by autograd.
at::Tensor unpack(const at::Tensor& packed, const Form& form, at::ScalarType dtype);
at::Tensor unpack_by_operators(const at::Tensor& packed, const Form& form, at::ScalarType dtype);

}  // namespace heddle::quantize
