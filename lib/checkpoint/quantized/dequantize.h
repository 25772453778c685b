// Values of quantized tensors: a box of them in float32, from only the bytes and scales that it needs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>

#include "heddle/base/export.h"
#include "heddle/checkpoint/safetensors.h"
#include "lib/checkpoint/quantized/quantization.h"

namespace heddle::checkpoint {

// Two tensors of the files that are one tensor of the model.
struct QuantizedTensor {
  std::string values, scales;
};

// Writes the box [offset, offset + out.sizes()) of the dequantized tensor into `out`, rounded once from
// float32 to its dtype. At most 16 MiB of float32 are in memory at a time, beside one row of the box. The
// tensors exist, and their dtypes and shapes are checked (BaseWeights).
//
// fp8: values float8_e4m3fn [..., rows, columns], scales float32, bfloat16 or float8_e8m0fnu [...,
// ceil(rows / block_rows), ceil(columns / block_columns)]; element = value * scale of its block, a product in
// float32, as transformers and AutoModel compute it.
HEDDLE_API void read_fp8(const HfWeights& weights, const QuantizedTensor& tensor, const Quantization& form,
                         std::span<const int64_t> offset, const at::Tensor& out);

// mxfp4 (OCP Microscaling Formats 1.0): values uint8 [experts, out, in / 32, 16], two E2M1 numbers a byte,
// the low four bits first; scales uint8 [experts, out, in / 32], 2^(scale - 127), 255 is NaN. The dequantized
// tensor is [experts, in, out], as transformers' convert_moe_packed_tensors gives it.
HEDDLE_API void read_mxfp4(const HfWeights& weights, const QuantizedTensor& tensor,
                           std::span<const int64_t> offset, const at::Tensor& out);

// Dequantizes one matrix: values uint8 or int8 [out, in / 2], scales uint8 or float8_e8m0fnu [out, in / 32],
// of which the bytes count; the dequantized tensor is [out, in].
HEDDLE_API void read_packed_mxfp4(const HfWeights& weights, const QuantizedTensor& tensor,
                                  std::span<const int64_t> offset, const at::Tensor& out);

inline constexpr int64_t kMxfp4Group = 32, kMxfp4Bytes = 16;  // elements with one scale, and their bytes

}  // namespace heddle::checkpoint
