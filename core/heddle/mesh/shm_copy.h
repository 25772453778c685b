// Copies to where the bytes are not needed soon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace heddle::mesh {

// Tensors of so many bytes do not stay in a core's share of the caches anyway.
constexpr size_t kFar = 6 * 1024 * 1024;

// memcpy past the caches: the target's lines are not read first, and what is in the caches stays there.
inline void copy_far(char* to, const char* from, size_t count) {
#if defined(__SSE2__)
  const size_t head = (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64;
  if (count > head + 64) {
    std::memcpy(to, from, head);
    to += head, from += head, count -= head;
    for (; count >= 64; to += 64, from += 64, count -= 64) {
      for (int i = 0; i < 64; i += 16) {
        const __m128i word = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), word);
      }
    }
    _mm_sfence();
  }
#endif
  if (count > 0) std::memcpy(to, from, count);
}

}  // namespace heddle::mesh
