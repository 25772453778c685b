// The manifest of a sharded directory: which file has which box of which tensor.
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

// Boxes of a tensor.

// The part of a tensor with indices [offset[d], offset[d] + size[d]) along each dim d.
struct Box {
  std::vector<int64_t> offset, size;
  bool operator==(const Box&) const = default;
  auto operator<=>(const Box&) const = default;
  HEDDLE_API int64_t numel() const;
};

// Returns whether the box is inside a tensor of `shape` and has as many dims.
HEDDLE_API bool fits(const Box& box, std::span<const int64_t> shape);

// Returns whether no two boxes of a tensor overlap. Accepts only boxes that can be separated by recursive
// splits along planes, as any sharding produces; other boxes count as overlapping. Takes n log n per kind of
// split.
HEDDLE_API bool are_apart(std::span<const Box> boxes);

// Returns whether no size is negative, and the numbers of elements and bytes fit into 64 bits, counting dims
// of size 0 as 1 as for strides.
HEDDLE_API bool countable(std::span<const int64_t> shape);

// Calls `visit(first, count)` for each contiguous range of a row-major tensor of `shape` that the box covers,
// in order. Adjacent ranges are merged.
HEDDLE_API void for_each_run(const Box& box, std::span<const int64_t> shape,
                             const std::function<void(int64_t first, int64_t count)>& visit);

// Returns the sizes as text: "[3, 4]".
HEDDLE_API std::string written(std::span<const int64_t> sizes);

// File name of the manifest in its directory.
inline constexpr const char* kManifest = "manifest.json";

// A box in a file. sums: checksums of its bytes, one per Manifest::kStretch bytes.
struct SavedBox {
  std::string file, key;
  Box box;
  std::vector<std::string> sums;
};

// A saved tensor and its boxes.
struct SavedTensor {
  c10::ScalarType dtype;
  std::vector<int64_t> shape;  // shape of the whole tensor
  std::vector<SavedBox> boxes;
};

// The saved tensors of a directory, by name.
struct Manifest {
  static constexpr int64_t kVersion = 1;
  static constexpr uint64_t kStretch = uint64_t{1} << 20;  // bytes
  std::map<std::string, SavedTensor> tensors;
  std::string sum;  // checksum of the manifest once it is read; equal checksums mean equal bytes
};

// Returns the manifest as JSON with its own checksum.
HEDDLE_API std::string written(const Manifest& manifest);

// Reads a manifest. Throws Error{input} naming the file if it is missing, is damaged or modified, or has a
// newer version.
HEDDLE_API Manifest read_manifest(const std::filesystem::path& file);

}  // namespace heddle::checkpoint
