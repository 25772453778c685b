// Finds the files of a model under a path: a Hugging Face directory, or a model that heddle saved.
#pragma once

#include <filesystem>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

struct ModelPlace {
  enum class Kind { hugging_face, sharded } kind = Kind::hugging_face;
  std::filesystem::path weights;  // directory of the safetensors, or of the manifest and the shards
  std::filesystem::path notes;    // directory of config.json and the tokenizer
  // optimizer state of the same checkpoint, which may hold more precise values; empty: none
  std::filesystem::path optimizer;
  std::vector<std::filesystem::path> adapters = {};  // directories of adapters to add, in this order
};

// Finds the model under PATH: a Hugging Face directory; a PEFT adapter, whose adapter_config.json names the
// base; a sharded model; a checkpoint with model/; or a run's checkpoint_dir, which stands for the checkpoint
// that LATEST names, or else the newest. A checkpoint's sharded model is preferred to its consolidated one,
// because it holds the exact values of the run. Throws Error{input} that names another program's format, or
// else the places that were searched.
HEDDLE_API ModelPlace find_model(const std::filesystem::path& path);

// File that says that a model's tokens are bytes of text.
inline constexpr const char* kTokenizerNote = "heddle_tokenizer.json";
HEDDLE_API bool has_byte_tokenizer(const ModelPlace& model);

}  // namespace heddle
