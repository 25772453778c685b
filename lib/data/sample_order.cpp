// Order of the samples, computed with a Feistel network.
#include "lib/data/sample_order.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randperm.h>

namespace heddle {
namespace {

// The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

std::vector<int64_t> torch_permutation(int64_t size, uint64_t seed) {
  const at::Tensor order =
      at::randperm(size, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kLong));
  const int64_t* first = order.const_data_ptr<int64_t>();
  return {first, first + size};
}

SampleOrder::SampleOrder(int64_t size, Shuffle shuffle, uint64_t seed, int64_t epoch)
    : size_(size), shuffle_(shuffle) {
  if (shuffle == Shuffle::torch)
    stored_ = std::make_shared<const std::vector<int64_t>>(
        torch_permutation(size, seed + static_cast<uint64_t>(epoch)));
  while ((uint64_t{1} << (2 * half_bits_)) < static_cast<uint64_t>(size)) ++half_bits_;
  uint64_t state = mix(mix(seed) ^ static_cast<uint64_t>(epoch));
  for (uint64_t& key : keys_) key = state = mix(state);
}

uint64_t SampleOrder::turn(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (const uint64_t key : keys_) {
    const uint64_t next = left ^ (mix(right ^ key) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

int64_t SampleOrder::operator[](int64_t place) const {
  if (shuffle_ == Shuffle::off || size_ < 2) return place;
  if (stored_) return (*stored_)[static_cast<size_t>(place)];
  uint64_t value = static_cast<uint64_t>(place);
  do {
    value = turn(value);
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

}  // namespace heddle
