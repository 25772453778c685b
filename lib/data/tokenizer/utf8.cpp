// The table of RFC 3629, section 4.
#include "lib/data/tokenizer/utf8.h"

#include <cstdint>
#include <cstring>

namespace heddle {
namespace {

// How many bytes the character at `bytes` has; 0: there is none. `left` of them are there.
size_t character(const unsigned char* bytes, size_t left) {
  const unsigned char first = bytes[0];
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || left < length) return 0;
  unsigned char low = 0x80, high = 0xbf;  // of the second byte
  if (first == 0xe0) low = 0xa0;          // shorter forms exist
  if (first == 0xed) high = 0x9f;         // surrogates
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;  // beyond U+10FFFF
  if (bytes[1] < low || bytes[1] > high) return 0;
  for (size_t i = 2; i < length; ++i)
    if ((bytes[i] & 0xc0) != 0x80) return 0;
  return length;
}

}  // namespace

size_t valid_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight = 0;
    if (text.size() - at >= sizeof(eight)) {
      std::memcpy(&eight, bytes + at, sizeof(eight));
      if ((eight & 0x8080808080808080ull) == 0) {
        at += sizeof(eight);
        continue;
      }
    }
    const size_t length = character(bytes + at, text.size() - at);
    if (length == 0) return at;
    at += length;
  }
  return at;
}

}  // namespace heddle
