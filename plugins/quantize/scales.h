// Scales of blocks in 8 bits: the dynamic code of Dettmers (2016), in blocks of 256.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle::quantize {

constexpr int64_t kGroup = 256;  // scales that share a second-level scale

// The 256 values of the signed dynamic code, in ascending order.
const std::array<float, 256>& dynamic_code();

// Midpoints of ascending values: the number of midpoints below x is the index of the value nearest to x.
template <size_t N>
std::array<float, N - 1> bounds_of(const std::array<float, N>& values) {
  std::array<float, N - 1> out{};
  for (size_t i = 0; i < out.size(); ++i) out[i] = (values[i] + values[i + 1]) / 2;
  return out;
}

struct PackedScales {
  std::vector<uint8_t> codes;
  std::vector<float> groups;  // the largest difference from the mean in each group
  float mean = 0;
};

PackedScales pack_scales(const std::vector<float>& scales);

// groups: of all scales; the mean follows them.
void unpack_scales(const uint8_t* codes, const float* groups, float mean, std::vector<float>& scales);

}  // namespace heddle::quantize
