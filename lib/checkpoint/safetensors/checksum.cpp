// All lanes in parallel, so that wide registers process a cache line or more at once.
#include "lib/checkpoint/safetensors/checksum.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "core/base/widest.h"

#ifdef HEDDLE_AVX512
#include <immintrin.h>
#endif

namespace heddle::checkpoint {
namespace {

constexpr uint32_t kOdd = 0x9e3779b1u;              // a prime near 2^32 over the golden ratio
constexpr uint64_t kLongOdd = 0x9e3779b97f4a7c15u;  // 2^64 over it

using Lanes = std::array<uint32_t, 64>;
using Line = uint32_t __attribute__((vector_size(64)));  // lanes that a register can hold
constexpr size_t kLines = sizeof(Lanes) / sizeof(Line);

HEDDLE_INLINE void load(Line& line, const char* at) {
  std::memcpy(&line, at, sizeof line);
}

HEDDLE_INLINE void mix(Line& state, const Line& words) {
  const Line mixed = (state ^ words) * kOdd;
  state = mixed ^ (mixed >> 15);
}

HEDDLE_INLINE void stir_lanes(Lanes* lanes, const char* at, size_t blocks) {
  Line state[kLines], words;
  std::memcpy(state, lanes->data(), sizeof state);
  for (; blocks > 0; --blocks, at += sizeof state) {
#pragma GCC unroll 4
    for (size_t i = 0; i < kLines; ++i) {
      load(words, at + i * sizeof(Line));
      mix(state[i], words);
    }
  }
  std::memcpy(lanes->data(), state, sizeof state);
}

void stir(Lanes& lanes, const char* at, size_t blocks) {
  run_widest<stir_lanes>(&lanes, at, blocks);
}

// Streaming stores interleaved with the sums: both overlap, which they do not when done one after the other.
#ifdef HEDDLE_AVX512
HEDDLE_AVX512 void stir_streaming(Lanes& lanes, const char* at, char* to, size_t blocks) {
  Line state[kLines], words;
  std::memcpy(state, lanes.data(), sizeof state);
  for (; blocks > 0; --blocks, at += sizeof state, to += sizeof state) {
#pragma GCC unroll 4
    for (size_t i = 0; i < kLines; ++i) {
      load(words, at + i * sizeof(Line));
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to) + i, reinterpret_cast<__m512i&>(words));
      mix(state[i], words);
    }
  }
  _mm_sfence();
  std::memcpy(lanes.data(), state, sizeof state);
}

bool can_stream(const char* to) {
  return cpu_capability() == CpuCapability::avx512 && reinterpret_cast<uintptr_t>(to) % sizeof(Line) == 0;
}
#else
void stir_streaming(Lanes&, const char*, char*, size_t) {}
bool can_stream(const char*) {
  return false;
}
#endif

}  // namespace

Checksum::Checksum() {
  std::iota(lanes_.begin(), lanes_.end(), 1u);
}

void Checksum::add(std::string_view bytes) {
  stir(lanes_, bytes.data(), bytes.size() / kBlock);
  add_rest(bytes);
}

void Checksum::add_copying(std::string_view bytes, char* to) {
  if (!can_stream(to)) {
    std::memcpy(to, bytes.data(), bytes.size());
    return add(bytes);
  }
  const size_t blocks = bytes.size() / kBlock;
  stir_streaming(lanes_, bytes.data(), to, blocks);
  std::memcpy(to + blocks * kBlock, bytes.data() + blocks * kBlock, bytes.size() % kBlock);
  add_rest(bytes);
}

// The bytes after the last whole block.
void Checksum::add_rest(std::string_view bytes) {
  length_ += bytes.size();
  const size_t rest = bytes.size() % kBlock;
  if (rest == 0) return;
  std::array<char, kBlock> last{};  // the length tells these zeros from zeros of the data
  std::memcpy(last.data(), bytes.data() + (bytes.size() - rest), rest);
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
