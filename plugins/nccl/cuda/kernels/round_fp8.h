// Rounding to 8-bit floats with one scale per tensor (Micikevicius et al. 2022): finds the largest value,
// then scales and rounds, in rows and optionally transposed.
#pragma once

#include "device.h"

// Rounds to nearest even: kMantissa bits of fraction, exponents from -kBias + 1. |x| is at most the largest
// value of the format, or x is NaN.
template <int kMantissa, int kBias>
HEDDLE_DEVICE unsigned char to_fp8(float x) {
  Bits in;
  in.value = x;
  const u32 sign = in.bits >> 31 << 7, size = in.bits & 0x7fffffffu;
  if (size > 0x7f800000u) return 0x7f;
  if (size < static_cast<u32>(128 - kBias) << 23) {  // subnormal: a multiple of the smallest value
    Bits steps;
    steps.bits = static_cast<u32>(127 + kBias - 1 + kMantissa) << 23;
    in.bits = size;
    return static_cast<unsigned char>(sign | static_cast<u32>(rintf(in.value * steps.value)));
  }
  constexpr int kDropped = 23 - kMantissa;
  const u32 rounded = size + (1u << (kDropped - 1)) - 1 + (size >> kDropped & 1u);
  return static_cast<unsigned char>(sign |
                                    ((rounded >> kDropped) - (static_cast<u32>(127 - kBias) << kMantissa)));
}

// Returns the largest |x| of the elements of a block.
template <class T, class Pack>
HEDDLE_DEVICE void largest(const T* x, float* most, i64 count) {
  HEDDLE_SHARED float shared[kThreads / kWarp];
  float seen = 0;
  for (i64 i = (static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x) * Pack::kSize; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads * Pack::kSize) {
    const Pack part = load<Pack>(x + i);
    for (int j = 0; j < Pack::kSize; ++j) seen = fmaxf(seen, fabsf(wide(part.at[j])));
  }
  const float all = block_max(seen, shared);
  if (threadIdx.x == 0) most[blockIdx.x] = all;
}

constexpr int kTile = 64;  // rows and columns of x per block
constexpr int kTileRow =
    kTile + 4;  // bytes between rows of the tile; padded, so that a column spans several banks

template <int kSize>
struct alignas(kSize) Bytes {
  unsigned char at[kSize];
};

HEDDLE_DEVICE unsigned char rounded(float x, float scale, float limit, int e5m2) {
  const float number = x * scale;
  const float kept = number != number ? number : fminf(fmaxf(number, -limit), limit);
  return e5m2 != 0 ? to_fp8<2, 15>(kept) : to_fp8<3, 7>(kept);
}

// Writes columns of the tile as rows of `across`, kSize elements at a time.
template <int kSize>
HEDDLE_DEVICE void write_across(const unsigned char* tile, unsigned char* across, i64 rows, i64 columns,
                                i64 first_row, i64 first_column) {
  constexpr int kPieces = kTile / kSize;
  for (int i = threadIdx.x; i < kTile * kPieces; i += kThreads) {
    const int inner = i % kPieces * kSize;
    const i64 column = first_column + i / kPieces, row = first_row + inner;
    if (row >= rows || column >= columns) continue;
    Bytes<kSize> out;
    for (int j = 0; j < kSize; ++j) out.at[j] = tile[(inner + j) * kTileRow + i / kPieces];
    store(across + column * rows + row, out);
  }
}

// x: [rows, columns]. most: `parts` results of largest(). Writes value [rows, columns], across [columns,
// rows] unless it is null, and the inverse of the scale. e5m2: 5 exponent bits, else e4m3.
template <class T, class Pack>
HEDDLE_DEVICE void round_fp8(const T* x, const float* most, int parts, unsigned char* value,
                             unsigned char* across, float* inverse, i64 rows, i64 columns, int e5m2) {
  HEDDLE_SHARED float shared[kThreads / kWarp];
  HEDDLE_SHARED unsigned char tile[kTile * kTileRow];
  float seen = 0;
  for (int i = threadIdx.x; i < parts; i += kThreads) seen = fmaxf(seen, most[i]);
  const float limit = e5m2 != 0 ? 57344.0f : 448.0f, scale = limit / fmaxf(block_max(seen, shared), 1e-12f);
  if (blockIdx.x == 0 && threadIdx.x == 0) *inverse = 1 / scale;
  const i64 tiles = (columns + kTile - 1) / kTile;
  const i64 first_row = blockIdx.x / tiles * kTile, first_column = blockIdx.x % tiles * kTile;
  constexpr int kPieces = kTile / Pack::kSize;
  for (int i = threadIdx.x; i < kTile * kPieces; i += kThreads) {
    const int inner = i % kPieces * Pack::kSize;
    const i64 row = first_row + i / kPieces, column = first_column + inner;
    if (row >= rows || column >= columns) continue;
    const Pack part = load<Pack>(x + row * columns + column);
    Bytes<Pack::kSize> out;
    for (int j = 0; j < Pack::kSize; ++j) {
      out.at[j] = rounded(wide(part.at[j]), scale, limit, e5m2);
      tile[i / kPieces * kTileRow + inner + j] = out.at[j];
    }
    store(value + row * columns + column, out);
  }
  if (across == nullptr) return;
  __syncthreads();
  if (rows % 8 == 0)
    write_across<8>(tile, across, rows, columns, first_row, first_column);
  else
    write_across<1>(tile, across, rows, columns, first_row, first_column);
}
