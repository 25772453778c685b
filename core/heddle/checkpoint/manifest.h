// The manifest of a sharded directory: which file holds which box of which tensor.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/checkpoint/box.h"

namespace heddle::checkpoint {

inline constexpr const char* kManifest = "manifest.json";

// One box as it stands in a file. `sums` are the checksums of its bytes, in stretches of Manifest::kStretch.
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
  std::string sum;  // the checksum of its own, once it was read: two manifests of one sum hold the same bytes
};

// JSON with a checksum of its own.
HEDDLE_API std::string written(const Manifest& manifest);

// Throws Error{input} naming the file: no manifest, JSON that is broken or changed, a newer version.
HEDDLE_API Manifest read_manifest(const std::filesystem::path& file);

}  // namespace heddle::checkpoint
