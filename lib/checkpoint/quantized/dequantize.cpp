// Boxes of quantized tensors, a piece at a time.
#include "lib/checkpoint/quantized/dequantize.h"

#include <ATen/ops/empty.h>
#include <c10/util/Float8_e4m3fn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace heddle::checkpoint {
namespace {

using Sizes = std::vector<int64_t>;
using Visit = std::function<void(const Sizes& offset, const at::Tensor& out)>;

constexpr int64_t kMostElements = int64_t{1} << 22;

// Cuts a box along its first dims into pieces of at most kMostElements; a row along the last dim stays whole.
void for_each_piece(const Sizes& offset, const at::Tensor& out, const Visit& visit, int64_t dim = 0) {
  if (out.numel() == 0) return;
  if (out.numel() <= kMostElements || dim + 1 >= out.dim()) return visit(offset, out);
  const int64_t size = out.size(dim), some = std::max<int64_t>(1, kMostElements / (out.numel() / size));
  for (int64_t first = 0; first < size; first += some) {
    Sizes at = offset;
    at[static_cast<size_t>(dim)] += first;
    for_each_piece(at, out.narrow(dim, first, std::min(some, size - first)), visit, dim + 1);
  }
}

const std::array<float, 256>& e4m3_values() {
  static const auto values = [] {
    std::array<float, 256> made{};
    for (size_t bits = 0; bits < made.size(); ++bits)
      made[bits] = c10::Float8_e4m3fn(static_cast<uint8_t>(bits), c10::Float8_e4m3fn::from_bits());
    return made;
  }();
  return values;
}

// The blocks along one dim that a box needs.
struct Blocks {
  Blocks(int64_t offset, int64_t size, int64_t block)
      : length(block), begin(offset), first(offset / block), count((offset + size - 1) / block - first + 1) {}
  int64_t of(int64_t index) const { return (begin + index) / length - first; }
  int64_t end_of(int64_t index) const { return (first + of(index) + 1) * length - begin; }
  int64_t length, begin, first, count;
};

// The scales of the blocks, in float32, and the bytes of the box.
at::Tensor fp8_piece(const HfWeights& weights, const QuantizedTensor& tensor, const Quantization& form,
                     const Sizes& offset, at::IntArrayRef sizes) {
  const size_t dims = sizes.size();
  const Blocks rows(offset[dims - 2], sizes[dims - 2], form.block_rows);
  const Blocks columns(offset[dims - 1], sizes[dims - 1], form.block_columns);
  Sizes at = offset, count = sizes.vec();
  at[dims - 2] = rows.first, at[dims - 1] = columns.first;
  count[dims - 2] = rows.count, count[dims - 1] = columns.count;
  const at::Tensor scales = at::empty(count, at::kFloat), bytes = at::empty(sizes, at::kFloat8_e4m3fn);
  weights.read(tensor.scales, at, scales);
  weights.read(tensor.values, offset, bytes);
  const at::Tensor out = at::empty(sizes, at::kFloat);
  const auto* from = static_cast<const uint8_t*>(bytes.const_data_ptr());
  auto* to = out.mutable_data_ptr<float>();
  const std::array<float, 256>& value = e4m3_values();
  const int64_t height = sizes[dims - 2], width = sizes[dims - 1];
  for (int64_t row = 0; row < out.numel() / width; ++row, from += width, to += width) {
    const float* scale =
        scales.const_data_ptr<float>() + (row / height * rows.count + rows.of(row % height)) * columns.count;
    for (int64_t column = 0; column < width; ++scale)
      for (const int64_t end = std::min(width, columns.end_of(column)); column < end; ++column)
        to[column] = value[from[column]] * *scale;
  }
  return out;
}

constexpr std::array<float, 16> kE2m1 = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                         -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

float e8m0_value(uint8_t scale) {
  return scale == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, scale - 127);
}

// Numbers of one byte each, as they are stored.
at::Tensor bytes_of(const HfWeights& weights, const std::string& name, const Sizes& offset,
                    at::IntArrayRef sizes) {
  const at::Tensor out = at::empty(sizes, weights.at(name).dtype);
  weights.read(name, offset, out);
  return out;
}

const uint8_t* bytes_in(const at::Tensor& tensor) {
  return static_cast<const uint8_t*>(tensor.const_data_ptr());
}

// Groups of kMxfp4Bytes with a scale each, in their order.
void write_mxfp4(const at::Tensor& bytes, const at::Tensor& scales, const at::Tensor& out) {
  const uint8_t *from = bytes_in(bytes), *exponent = bytes_in(scales);
  auto* to = out.mutable_data_ptr<float>();
  for (int64_t group = 0; group < scales.numel(); ++group) {
    const float scale = e8m0_value(exponent[group]);
    for (int64_t i = 0; i < kMxfp4Bytes; ++i, ++from, to += 2) {
      to[0] = kE2m1[*from & 15] * scale;
      to[1] = kE2m1[*from >> 4] * scale;
    }
  }
}

// In the order of the model's dims: [experts, in, out].
at::Tensor mxfp4_piece(const HfWeights& weights, const QuantizedTensor& tensor, const Sizes& offset,
                       at::IntArrayRef sizes) {
  const Blocks groups(offset[1], sizes[1], kMxfp4Group);
  const at::Tensor bytes = bytes_of(weights, tensor.values, {offset[0], offset[2], groups.first, 0},
                                    {sizes[0], sizes[2], groups.count, kMxfp4Bytes});
  const at::Tensor scales = bytes_of(weights, tensor.scales, {offset[0], offset[2], groups.first},
                                     {sizes[0], sizes[2], groups.count});
  const at::Tensor out = at::empty({sizes[0], sizes[2], groups.count * kMxfp4Group}, at::kFloat);
  write_mxfp4(bytes, scales, out);
  return out.narrow(2, offset[1] - groups.first * kMxfp4Group, sizes[1]).transpose(1, 2);
}

at::Tensor packed_mxfp4_piece(const HfWeights& weights, const QuantizedTensor& tensor, const Sizes& offset,
                              at::IntArrayRef sizes) {
  const Blocks groups(offset[1], sizes[1], kMxfp4Group);
  const at::Tensor bytes = bytes_of(weights, tensor.values, {offset[0], groups.first * kMxfp4Bytes},
                                    {sizes[0], groups.count * kMxfp4Bytes});
  const at::Tensor scales =
      bytes_of(weights, tensor.scales, {offset[0], groups.first}, {sizes[0], groups.count});
  const at::Tensor out = at::empty({sizes[0], groups.count * kMxfp4Group}, at::kFloat);
  write_mxfp4(bytes, scales, out);
  return out.narrow(1, offset[1] - groups.first * kMxfp4Group, sizes[1]);
}

}  // namespace

void read_fp8(const HfWeights& weights, const QuantizedTensor& tensor, const Quantization& form,
              std::span<const int64_t> offset, const at::Tensor& out) {
  for_each_piece({offset.begin(), offset.end()}, out.detach(), [&](const Sizes& at, const at::Tensor& piece) {
    piece.copy_(fp8_piece(weights, tensor, form, at, piece.sizes()));
  });
}

void read_mxfp4(const HfWeights& weights, const QuantizedTensor& tensor, std::span<const int64_t> offset,
                const at::Tensor& out) {
  for_each_piece({offset.begin(), offset.end()}, out.detach(), [&](const Sizes& at, const at::Tensor& piece) {
    piece.copy_(mxfp4_piece(weights, tensor, at, piece.sizes()));
  });
}

void read_packed_mxfp4(const HfWeights& weights, const QuantizedTensor& tensor,
                       std::span<const int64_t> offset, const at::Tensor& out) {
  for_each_piece({offset.begin(), offset.end()}, out.detach(), [&](const Sizes& at, const at::Tensor& piece) {
    piece.copy_(packed_mxfp4_piece(weights, tensor, at, piece.sizes()));
  });
}

}  // namespace heddle::checkpoint
