// Hashes of tensors by operators that wrap at 64 bits, for random numbers that are the same on every device.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace heddle::model {

inline constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;
inline constexpr uint64_t kMixFirst = 0xBF58476D1CE4E5B9ull, kMixSecond = 0x94D049BB133111EBull;

// x int64; zeros come in from the left.
inline at::Tensor shifted(const at::Tensor& x, int64_t bits) {
  return x.bitwise_right_shift(bits).bitwise_and((int64_t{1} << (64 - bits)) - 1);
}

// The finaliser of splitmix64 (Steele et al. 2014).
inline at::Tensor mixed(at::Tensor x) {
  x = x.bitwise_xor(shifted(x, 30)) * static_cast<int64_t>(kMixFirst);
  x = x.bitwise_xor(shifted(x, 27)) * static_cast<int64_t>(kMixSecond);
  return x.bitwise_xor(shifted(x, 31));
}

inline uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * kMixFirst;
  x = (x ^ (x >> 27)) * kMixSecond;
  return x ^ (x >> 31);
}

}  // namespace heddle::model
