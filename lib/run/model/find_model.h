// Where a model stands under a path that somebody gave: a Hugging Face directory, or one that heddle has
// saved.
#pragma once

#include <filesystem>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

struct ModelPlace {
  enum class Kind { hugging_face, sharded } kind = Kind::hugging_face;
  std::filesystem::path weights;    // the directory of the safetensors, or of the manifest and the shards
  std::filesystem::path notes;      // the directory of config.json and the tokenizer
  std::filesystem::path optimizer;  // of the same checkpoint, which may hold finer values; empty: none
  std::vector<std::filesystem::path> adapters = {};  // directories whose differences are added, in this order
};

// PATH may be a Hugging Face directory; an adapter of PEFT's, whose adapter_config.json names the base; a
// sharded model; a checkpoint with model/ in it; the checkpoint
// directory of a run: then the one that LATEST names, or the newest. A checkpoint's sharded model goes before
// its consolidated one, as it has the values of the run. Throws Error{input}: what other programs wrote is
// named, else where it was looked.
HEDDLE_API ModelPlace find_model(const std::filesystem::path& path);

// The note that a model's tokens are bytes of text.
inline constexpr const char* kTokenizerNote = "heddle_tokenizer.json";
HEDDLE_API bool has_byte_tokenizer(const ModelPlace& model);

}  // namespace heddle
