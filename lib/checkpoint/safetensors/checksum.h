// A checksum of bytes for files that are read long after they were written.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "heddle/base/export.h"

namespace heddle::checkpoint {

// Sixty-four lanes of 32-bit words, each step a bijection of its lane: a change inside one word is always
// detected. It detects damage, not forgery. Faster than memory bandwidth.
class HEDDLE_API Checksum {
 public:
  static constexpr size_t kBlock = 256;  // bytes

  Checksum();
  // Adds bytes: whole blocks, except in the last call.
  void add(std::string_view bytes);
  // Adds bytes and copies them to `to` with streaming stores: for bytes in a cache that are not needed soon
  // this costs little more than a copy alone.
  void add_copying(std::string_view bytes, char* to);
  // Sixteen hexadecimal digits of all that was added.
  std::string digits() const;

 private:
  void add_rest(std::string_view rest);

  alignas(64) std::array<uint32_t, 64> lanes_;
  uint64_t length_ = 0;
};

// The checksum of all bytes at once.
HEDDLE_API std::string checksum(std::string_view bytes);

}  // namespace heddle::checkpoint
