// Sums block by block, so that partial sums stay in the first-level cache and the loops vectorise.
#include "core/mesh/sums.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <string>

#include "core/base/widest.h"
#include "heddle/base/error.h"

namespace heddle::mesh {
namespace {

constexpr int64_t kBlock = 512;

template <class T, class Running>
HEDDLE_INLINE void fold(Running* running, const T* __restrict part, int64_t count, Reduce reduce) {
  if (reduce != Reduce::max) {
    for (int64_t i = 0; i < count; ++i) running[i] += static_cast<Running>(part[i]);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<Running>(part[i]);
    running[i] = value > running[i] || value != value ? value : running[i];
  }
}

// Two ranks, the usual case on one machine; element by element, so `out` may be one of them.
template <class T, class Running>
HEDDLE_INLINE void add_two(void* out, const void* first, const void* second, int64_t count, Running divisor) {
  T* to = static_cast<T*>(out);
  const T *a = static_cast<const T*>(first), *b = static_cast<const T*>(second);
  if (divisor == Running{1}) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i)
      to[i] = static_cast<T>(static_cast<Running>(a[i]) + static_cast<Running>(b[i]));
    return;
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i)
    to[i] = static_cast<T>((static_cast<Running>(a[i]) + static_cast<Running>(b[i])) / divisor);
}

template <class T, class Running>
HEDDLE_INLINE void combine_as(void* out, std::span<const void* const> parts, int64_t count, Reduce reduce) {
  if (parts.size() == 2 && reduce != Reduce::max) {
    const auto divisor = static_cast<Running>(reduce == Reduce::average ? 2 : 1);
    return add_two<T, Running>(out, parts[0], parts[1], count, divisor);
  }
  Running running[kBlock];
  for (int64_t start = 0; start < count; start += kBlock) {
    const int64_t length = std::min(kBlock, count - start);
    const T* first = static_cast<const T*>(parts[0]) + start;
    for (int64_t i = 0; i < length; ++i) running[i] = static_cast<Running>(first[i]);
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      fold(running, static_cast<const T*>(parts[rank]) + start, length, reduce);
    }
    if (reduce == Reduce::average)
      for (int64_t i = 0; i < length; ++i) running[i] /= static_cast<Running>(parts.size());
    T* to = static_cast<T*>(out) + start;
    for (int64_t i = 0; i < length; ++i) to[i] = static_cast<T>(running[i]);
  }
}

// False for a type that cannot be summed.
HEDDLE_INLINE bool combine_in(void* out, std::span<const void* const> parts, int64_t count,
                              at::ScalarType type, Reduce reduce) {
  switch (type) {
    case at::kFloat:
      combine_as<float, float>(out, parts, count, reduce);
      return true;
    case at::kDouble:
      combine_as<double, double>(out, parts, count, reduce);
      return true;
    case at::kBFloat16:
      combine_as<c10::BFloat16, float>(out, parts, count, reduce);
      return true;
    case at::kHalf:
      combine_as<c10::Half, float>(out, parts, count, reduce);
      return true;
    case at::kLong:
      combine_as<int64_t, int64_t>(out, parts, count, reduce);
      return true;
    case at::kInt:
      combine_as<int32_t, int32_t>(out, parts, count, reduce);
      return true;
    case at::kShort:
      combine_as<int16_t, int16_t>(out, parts, count, reduce);
      return true;
    case at::kChar:
      combine_as<int8_t, int8_t>(out, parts, count, reduce);
      return true;
    case at::kByte:
      combine_as<uint8_t, uint8_t>(out, parts, count, reduce);
      return true;
    default:
      return false;
  }
}

}  // namespace

void combine(void* out, std::span<const void* const> parts, int64_t count, at::ScalarType type,
             Reduce reduce) {
  if (run_widest<combine_in>(out, parts, count, type, reduce)) return;
  throw Error(ErrorCode::internal, "mesh", std::string("ranks cannot be summed over ") + c10::toString(type),
              "sum in float32, bfloat16, float16, float64 or an integer type");
}

}  // namespace heddle::mesh
