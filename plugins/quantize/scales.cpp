// The dynamic code: seven decades, each with twice as many values as the previous one.
#include "scales.h"

#include <algorithm>
#include <cmath>

namespace heddle::quantize {
namespace {

// Returns value `at` of `count` equally spaced values from 0.1 to 1, computed from the nearer end and rounded
// once.
float between(int at, int count) {
  const float first = 0.1F, step = (1.0F - first) / static_cast<float>(count - 1);
  if (at < count / 2) return static_cast<float>(first + static_cast<double>(step) * at);
  return static_cast<float>(1.0 - static_cast<double>(step) * (count - 1 - at));
}

std::array<float, 256> made_code() {
  std::array<float, 256> out{};
  size_t at = 0;
  for (int decade = 0; decade < 7; ++decade) {
    const int count = (1 << decade) + 1;
    const auto power = static_cast<float>(std::pow(10.0, decade - 6));
    for (int i = 0; i + 1 < count; ++i) {
      const float value = power * ((between(i, count) + between(i + 1, count)) / 2.0F);
      out[at++] = value;
      out[at++] = -value;
    }
  }
  out[at++] = 0;
  out[at++] = 1;
  std::sort(out.begin(), out.end());
  return out;
}

uint8_t nearest_of_256(float value) {
  static const std::array<float, 255> bounds = bounds_of(dynamic_code());
  return static_cast<uint8_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
}

}  // namespace

const std::array<float, 256>& dynamic_code() {
  static const std::array<float, 256> code = made_code();
  return code;
}

PackedScales pack_scales(const std::vector<float>& scales) {
  PackedScales out;
  double sum = 0;
  for (const float scale : scales) sum += scale;
  out.mean = static_cast<float>(sum / static_cast<double>(scales.size()));
  out.codes.resize(scales.size());
  const auto count = static_cast<int64_t>(scales.size());
  for (int64_t begin = 0; begin < count; begin += kGroup) {
    const int64_t end = std::min(count, begin + kGroup);
    float most = 0;
    for (int64_t i = begin; i < end; ++i) most = std::max(most, std::fabs(scales[i] - out.mean));
    out.groups.push_back(most);
    const float factor = 1 / std::max(most, 1e-38F);
    for (int64_t i = begin; i < end; ++i) {
      const float difference = scales[i] - out.mean;
      const float part = end - begin == kGroup ? difference * factor : difference / std::max(most, 1e-38F);
      out.codes[i] = nearest_of_256(std::clamp(part, -1.0F, 1.0F));
    }
  }
  return out;
}

// The product is rounded before the sum, so compilers must not fuse them.
void unpack_scales(const uint8_t* codes, const float* groups, float mean, std::vector<float>& scales) {
  const std::array<float, 256>& code = dynamic_code();
  for (size_t i = 0; i < scales.size(); ++i) {
    const auto product = static_cast<float>(static_cast<double>(code[codes[i]]) * groups[i / kGroup]);
    scales[i] = product + mean;
  }
}

}  // namespace heddle::quantize
