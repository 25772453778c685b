// The manifest of a sharded directory: which file holds which box of which tensor.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"

namespace heddle::checkpoint {

// Boxes of a whole tensor: do they fit, and the stretches of memory that one covers.

// Along dim d it holds [offset[d], offset[d] + size[d]).
struct Box {
  std::vector<int64_t> offset, size;
  bool operator==(const Box&) const = default;
  auto operator<=>(const Box&) const = default;
  HEDDLE_API int64_t numel() const;
};

// The box is inside a tensor of `shape` and has as many dims.
HEDDLE_API bool fits(const Box& box, std::span<const int64_t> shape);

// No two boxes of one tensor overlap. Only boxes that planes separate one after the other are accepted, as
// from any split of a tensor into parts of parts; others count as overlapping. In n log n for each kind of
// split.
HEDDLE_API bool are_apart(std::span<const Box> boxes);

// No size is negative, and the numbers of elements and bytes fit into 64 bits, also with dims of size 0 taken
// as 1, as for strides.
HEDDLE_API bool countable(std::span<const int64_t> shape);

// Calls `visit(first, count)` for each contiguous range of a row-major tensor of `shape` that the box covers,
// in order; adjacent ranges are merged.
HEDDLE_API void for_each_run(const Box& box, std::span<const int64_t> shape,
                             const std::function<void(int64_t first, int64_t count)>& visit);

// "[3, 4]".
HEDDLE_API std::string written(std::span<const int64_t> sizes);

inline constexpr const char* kManifest = "manifest.json";

// One box in a file. `sums` are the checksums of its bytes, one per Manifest::kStretch bytes.
struct SavedBox {
  std::string file, key;
  Box box;
  std::vector<std::string> sums;
};

struct SavedTensor {
  c10::ScalarType dtype;
  std::vector<int64_t> shape;  // of the whole
  std::vector<SavedBox> boxes;
};

struct Manifest {
  static constexpr int64_t kVersion = 1;
  static constexpr uint64_t kStretch = uint64_t{1} << 20;  // bytes
  std::map<std::string, SavedTensor> tensors;
  std::string sum;  // its own checksum, once read: two manifests with one sum have the same bytes
};

// JSON with a checksum of its own.
HEDDLE_API std::string written(const Manifest& manifest);

// Throws Error{input} naming the file: no manifest, JSON that is broken or changed, a newer version.
HEDDLE_API Manifest read_manifest(const std::filesystem::path& file);

}  // namespace heddle::checkpoint
