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
  // Bytes by path in the directory: config.json, tokenizer, chat templates, modeling code.
  std::map<std::string, std::string> files;
  bool operator==(const HfOrigin&) const = default;
};

// Under a sharded model's directory, after AutoModel's layout.
inline constexpr const char* kHfMetadata = ".hf_metadata";

// The directory of named chat templates, NAME.jinja each, beside chat_template.jinja.
inline constexpr const char* kNamedTemplates = "additional_chat_templates";

// Reads the origin of a directory with these weights. Throws Error{input} for a file that cannot be read.
HEDDLE_API HfOrigin read_origin(const std::filesystem::path& directory, const HfWeights& weights);

// Writes it into PLACE, which is made, and reads it again: the notes as they are, and tensors.json. Throw
// Error{io} and Error{input}.
HEDDLE_API void keep_origin(const std::filesystem::path& place, const HfOrigin& origin);
HEDDLE_API HfOrigin kept_origin(const std::filesystem::path& place);

// Writes one of HfOrigin::files into the directory, and makes the folder that its path names. Throws
// Error{io}.
HEDDLE_API void write_note(const std::filesystem::path& directory, const std::string& name,
                           const std::string& bytes);

}  // namespace heddle::checkpoint
