// Everything in a Hugging Face directory except the values of its tensors, as an export from a checkpoint
// needs it.
#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <map>
#include <string>

#include "heddle/base/export.h"
#include "heddle/checkpoint/safetensors.h"

namespace heddle::checkpoint {

struct HfOrigin {
  struct Tensor {
    std::string file;
    c10::ScalarType dtype;
    bool operator==(const Tensor&) const = default;
  };
  std::map<std::string, Tensor> tensors;  // empty: the model started from random values
  std::string index;                      // text of the index's "metadata"; empty: there was no index
  std::map<std::string, std::string>
      files;  // bytes by name: config.json, tokenizer, chat template, modeling code
  bool operator==(const HfOrigin&) const = default;
};

// Under a sharded model's directory, after AutoModel's layout.
inline constexpr const char* kHfMetadata = ".hf_metadata";

// Of a directory with these weights. Throws Error{input} for a file that cannot be read.
HEDDLE_API HfOrigin read_origin(const std::filesystem::path& directory, const HfWeights& weights);

// Writes it into PLACE, which is made, and reads it again: the notes as they are, and tensors.json. Throw
// Error{io} and Error{input}.
HEDDLE_API void keep_origin(const std::filesystem::path& place, const HfOrigin& origin);
HEDDLE_API HfOrigin kept_origin(const std::filesystem::path& place);

}  // namespace heddle::checkpoint
