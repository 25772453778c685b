// Sums block by block, so that the running values stay in the first cache and the loops vectorise.
#include "heddle/mesh/sums.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <string>

#include "heddle/base/error.h"

namespace heddle::mesh {
namespace {

constexpr int64_t kBlock = 512;

template <class T, class Running>
void fold(Running* running, const T* __restrict part, int64_t count, Reduce reduce) {
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
void add_two(void* out, const void* first, const void* second, int64_t count, Running divisor) {
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
void combine_as(void* out, std::span<const void* const> parts, int64_t count, Reduce reduce) {
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

}  // namespace

void combine(void* out, std::span<const void* const> parts, int64_t count, at::ScalarType type,
             Reduce reduce) {
  switch (type) {
    case at::kFloat:
      return combine_as<float, float>(out, parts, count, reduce);
    case at::kDouble:
      return combine_as<double, double>(out, parts, count, reduce);
    case at::kBFloat16:
      return combine_as<c10::BFloat16, float>(out, parts, count, reduce);
    case at::kHalf:
      return combine_as<c10::Half, float>(out, parts, count, reduce);
    case at::kLong:
      return combine_as<int64_t, int64_t>(out, parts, count, reduce);
    case at::kInt:
      return combine_as<int32_t, int32_t>(out, parts, count, reduce);
    case at::kShort:
      return combine_as<int16_t, int16_t>(out, parts, count, reduce);
    case at::kChar:
      return combine_as<int8_t, int8_t>(out, parts, count, reduce);
    case at::kByte:
      return combine_as<uint8_t, uint8_t>(out, parts, count, reduce);
    default:
      throw Error(ErrorCode::internal, "mesh",
                  std::string("ranks cannot be summed over ") + c10::toString(type),
                  "sum in float32, bfloat16, float16, float64 or an integer type");
  }
}

}  // namespace heddle::mesh
