// The allocated ranges of an arena.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

#include "heddle/base/export.h"

namespace heddle::mesh {

// First fit over a range of bytes; neighbours that are free become one. Not safe for several threads.
class HEDDLE_API Extents {
 public:
  Extents(size_t start, size_t end) : free_{{start, end - start}} {}
  std::optional<size_t> take(size_t bytes);  // offset; empty: no range is long enough
  void give(size_t start, size_t bytes);     // one that was taken
  size_t taken() const { return taken_; }    // bytes

 private:
  std::map<size_t, size_t> free_;  // bytes by start
  size_t taken_ = 0;
};

}  // namespace heddle::mesh
