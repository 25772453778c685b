// The layout of an export: the file, dtype and offset of each tensor, decided from names and shapes before
// anything is read.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/checkpoint/manifest.h"
#include "lib/checkpoint/huggingface/hf_layout.h"
#include "lib/checkpoint/huggingface/hf_origin.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"

namespace heddle::checkpoint {

// The options of an export; empty: as in the original, else as saved.
struct HfChoice {
  std::optional<c10::ScalarType> dtype = {};    // of every tensor of real numbers
  std::optional<uint64_t> max_file_bytes = {};  // files by size; without an original they are at most 5 GiB
  enum class Config { original, readable_by_v4 } config = Config::original;
};

struct HfFile {
  std::string name, header;            // the header's bytes
  std::vector<TensorToWrite> tensors;  // adjacent, after the header
  HEDDLE_API uint64_t bytes() const;   // of the whole file
};

struct HfPlan {
  std::vector<HfFile> files;
  std::string index;   // text of model.safetensors.index.json; empty: none is written
  std::string config;  // text of config.json, its dtype that of the tensors; empty: none is known
  HfLayout layout;     // of the tensors that are not a parameter as it is
};

// Tensors go to the files of the original, those that it lacks to its last one; files are renumbered if some
// would be empty. By size: in the order of the model, a tensor that is too large in a file of its own. Within
// a file tensors are in the order of safetensors' own writers: larger dtypes first, then by name. The model
// maps the parameters of the manifest to tensors and gives their order; without one each parameter is the
// tensor of its name. Throws Error{internal} if parameters cover only a part of a tensor.
HEDDLE_API HfPlan plan_hf(const Manifest& manifest, const HfOrigin& origin, const HfChoice& choice,
                          const ModelSpec* model = nullptr);

// layers.2 before layers.10.
HEDDLE_API bool comes_before(const std::string& a, const std::string& b);

}  // namespace heddle::checkpoint
