// Streaming stores, whole lines at once where the processor can.
#include "lib/transport/shm/shm_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/base/widest.h"

#ifdef HEDDLE_AVX512
#include <immintrin.h>
#endif

namespace heddle::mesh {
namespace {

constexpr size_t kCacheLine = 64;

#ifdef HEDDLE_AVX512
// `to` is at the beginning of a cache line. Return the bytes copied.
HEDDLE_AVX512 size_t stream_lines(char* to, const char* from, size_t count) {
  const size_t whole = count / (4 * kCacheLine) * (4 * kCacheLine);
  for (size_t at = 0; at < whole; at += 4 * kCacheLine) {
    __m512i lines[4];
    for (int i = 0; i < 4; ++i) lines[i] = _mm512_loadu_si512(from + at + i * kCacheLine);
    for (int i = 0; i < 4; ++i)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + i * kCacheLine), lines[i]);
  }
  _mm_sfence();
  return whole;
}

size_t stream_words(char* to, const char* from, size_t count) {
  const size_t whole = count / kCacheLine * kCacheLine;
  for (size_t at = 0; at < whole; at += sizeof(__m128i))
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  _mm_sfence();
  return whole;
}

size_t stream(char* to, const char* from, size_t count) {
  return cpu_capability() == CpuCapability::avx512 ? stream_lines(to, from, count)
                                                   : stream_words(to, from, count);
}
#else
size_t stream(char*, const char*, size_t) {
  return 0;
}
#endif

}  // namespace

void copy_far(char* to, const char* from, size_t count) {
  const size_t head =
      std::min(count, (kCacheLine - reinterpret_cast<uintptr_t>(to) % kCacheLine) % kCacheLine);
  if (head > 0) std::memcpy(to, from, head);
  const size_t done = head + stream(to + head, from + head, count - head);
  if (done < count) std::memcpy(to + done, from + done, count - done);
}

}  // namespace heddle::mesh
