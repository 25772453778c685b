// Four lanes, so that the multiplications of one word do not wait for those of the word before.
#include "heddle/checkpoint/checksum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>

namespace heddle::checkpoint {
namespace {

constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;  // 2^64 over the golden ratio

uint64_t stir(uint64_t lane, uint64_t word) {
  return std::rotl((lane ^ word) * kOdd, 31);
}

uint64_t word_at(const char* at, size_t bytes = sizeof(uint64_t)) {
  uint64_t word = 0;
  std::memcpy(&word, at, bytes);
  return word;
}

}  // namespace

std::string checksum(std::string_view bytes) {
  std::array<uint64_t, 4> lanes{1, 2, 3, 4};
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= sizeof lanes; at += sizeof lanes, left -= sizeof lanes)
    for (size_t lane = 0; lane < lanes.size(); ++lane)
      lanes[lane] = stir(lanes[lane], word_at(at + lane * sizeof(uint64_t)));
  uint64_t all = bytes.size() * kOdd;
  for (const uint64_t lane : lanes) all = stir(all, lane);
  for (; left > 0; at += std::min(left, sizeof all), left -= std::min(left, sizeof all))
    all = stir(all, word_at(at, std::min(left, sizeof all)));
  all ^= all >> 32;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(all * kOdd));
  return text;
}

}  // namespace heddle::checkpoint
