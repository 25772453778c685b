// The smallest and the largest of many tokens: one loop a type.
#include "lib/data/tokens/token_range.h"

#include <algorithm>

#include "core/base/widest.h"

namespace heddle {
namespace {

template <class T>
__attribute__((always_inline)) inline TokenRange range_in(const std::byte* from, int64_t count) {
  const T* tokens = reinterpret_cast<const T*>(from);
  T least = std::numeric_limits<T>::max(), most = std::numeric_limits<T>::min();
  for (int64_t i = 0; i < count; ++i) {
    least = std::min(least, tokens[i]);
    most = std::max(most, tokens[i]);
  }
  return {static_cast<int64_t>(least), static_cast<int64_t>(most)};
}

template <class T>
TokenRange limits_of() {
  return {static_cast<int64_t>(std::numeric_limits<T>::min()),
          static_cast<int64_t>(std::numeric_limits<T>::max())};
}

HEDDLE_INLINE TokenRange range_of_type(TokenType type, const std::byte* from, int64_t count) {
  switch (type) {
    case TokenType::uint8:
      return range_in<uint8_t>(from, count);
    case TokenType::int8:
      return range_in<int8_t>(from, count);
    case TokenType::int16:
      return range_in<int16_t>(from, count);
    case TokenType::uint16:
      return range_in<uint16_t>(from, count);
    case TokenType::int32:
      return range_in<int32_t>(from, count);
    case TokenType::uint32:
      return range_in<uint32_t>(from, count);
    case TokenType::int64:
      return range_in<int64_t>(from, count);
  }
  return {};
}

}  // namespace

TokenRange range_of(TokenType type, const std::byte* from, int64_t count) {
  return run_widest<range_of_type>(type, from, count);
}

TokenRange range_of(TokenType type) {
  switch (type) {
    case TokenType::uint8:
      return limits_of<uint8_t>();
    case TokenType::int8:
      return limits_of<int8_t>();
    case TokenType::int16:
      return limits_of<int16_t>();
    case TokenType::uint16:
      return limits_of<uint16_t>();
    case TokenType::int32:
      return limits_of<int32_t>();
    case TokenType::uint32:
      return limits_of<uint32_t>();
    case TokenType::int64:
      return limits_of<int64_t>();
  }
  return {};
}

}  // namespace heddle
