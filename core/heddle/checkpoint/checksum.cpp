// The lanes side by side, so that a processor with wide registers takes a cache line or more at once.
#include "heddle/checkpoint/checksum.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "heddle/base/widest.h"

namespace heddle::checkpoint {
namespace {

using Lanes = std::array<uint32_t, 64>;
constexpr uint32_t kOdd = 0x9e3779b1u;              // a prime near 2^32 over the golden ratio
constexpr uint64_t kLongOdd = 0x9e3779b97f4a7c15u;  // 2^64 over it

HEDDLE_WIDEST void stir(Lanes& lanes, const char* at, size_t blocks) {
  Lanes state = lanes, words;
  for (; blocks > 0; --blocks, at += sizeof words) {
    std::memcpy(words.data(), at, sizeof words);
    for (size_t lane = 0; lane < state.size(); ++lane) {
      const uint32_t mixed = (state[lane] ^ words[lane]) * kOdd;
      state[lane] = mixed ^ (mixed >> 15);
    }
  }
  lanes = state;
}

}  // namespace

Checksum::Checksum() {
  std::iota(lanes_.begin(), lanes_.end(), 1u);
}

void Checksum::add(std::string_view bytes) {
  const size_t blocks = bytes.size() / kBlock, rest = bytes.size() % kBlock;
  stir(lanes_, bytes.data(), blocks);
  length_ += bytes.size();
  if (rest == 0) return;
  std::array<char, kBlock> last{};  // the length tells these zeros from zeros of the data
  std::memcpy(last.data(), bytes.data() + blocks * kBlock, rest);
  stir(lanes_, last.data(), 1);
}

std::string Checksum::digits() const {
  uint64_t all = length_ * kLongOdd;
  for (size_t lane = 0; lane < lanes_.size(); lane += 2) {
    const uint64_t word = uint64_t{lanes_[lane]} << 32 | lanes_[lane + 1];
    all = std::rotl((all ^ word) * kLongOdd, 31);
  }
  all ^= all >> 32;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(all * kLongOdd));
  return text;
}

std::string checksum(std::string_view bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.digits();
}

}  // namespace heddle::checkpoint
