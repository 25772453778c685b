// The form of quantized weights, as config.json describes it (transformers' FineGrainedFP8Config,
// Mxfp4Config).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "heddle/base/export.h"
#include "heddle/config/node.h"

namespace heddle::checkpoint {

struct Quantization {
  enum class Method { fp8, mxfp4 } method = Method::fp8;
  // fp8: the elements that share a scale, along the last two dims of a tensor.
  int64_t block_rows = 128, block_columns = 128;
  bool packed = false;  // mxfp4: matrices, each in two tensors (compressed-tensors), not stacks of experts
  HEDDLE_API const char* name() const;  // "fp8", "mxfp4"
  bool operator==(const Quantization&) const = default;
};

// Reads the keys of a config.json, or of its text_config. Empty: the weights are plain, or of a method that
// is not known here. Throws Error{input} at a key of fp8 that asks for another form than blocks of E4M3.
HEDDLE_API std::optional<Quantization> quantization_of(const Node& config_json);
// Reads the config.json of a directory; empty if there is none.
HEDDLE_API std::optional<Quantization> quantization_in(const std::filesystem::path& directory);

// The keys of the model with dequantized weights: without quantization_config and expert_dtype where
// quantization_of() knows its method. The text of a config.json likewise, which is returned as it is where
// nothing is removed.
HEDDLE_API Node without_quantization(const Node& config_json);
HEDDLE_API std::string without_quantization(const std::string& config_json);

}  // namespace heddle::checkpoint
