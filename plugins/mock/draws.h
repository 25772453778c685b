// Random numbers as a function of a seed and a position: a counter-based generator, so that any rank can draw
// any sample in any order.
#pragma once

#include <cstdint>

namespace heddle::mock {

// The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
inline uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Random draws of one sample.
class Draws {
 public:
  Draws(uint64_t seed, int64_t sample) : key_(mixed(mixed(seed) ^ static_cast<uint64_t>(sample))) {}
  uint64_t bits(int64_t place) const { return mixed(key_ ^ mixed(static_cast<uint64_t>(place))); }
  // Uniform in [0, count), for count below 2^32: the upper half of a product (Lemire 2019). Its bias is below
  // count / 2^64.
  int64_t below(int64_t place, int64_t count) const {
    return static_cast<int64_t>(
        (static_cast<unsigned __int128>(bits(place)) * static_cast<uint64_t>(count)) >> 64);
  }
  double unit(int64_t place) const {
    return static_cast<double>((bits(place) >> 11) + 1) * 0x1p-53;
  }  // (0, 1]

 private:
  uint64_t key_;
};

}  // namespace heddle::mock
