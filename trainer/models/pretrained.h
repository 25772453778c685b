// A model as it stands in a Hugging Face directory: its shape, and where its values come from.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "heddle/base/export.h"
#include "heddle/checkpoint/safetensors.h"
#include "heddle/parallel/build.h"
#include "trainer/models/model_config.h"

namespace heddle {

struct Pretrained {
  ModelConfig config;
  std::string config_json;  // the file's text, to be carried over to an export
  std::shared_ptr<const HfWeights> weights;
  ParameterSource source;  // for parallel::build
};

// Reads config.json and the headers of the weights, not the weights. Throws Error{input} naming the file and
// the key or tensor.
HEDDLE_API Pretrained open_pretrained(const std::filesystem::path& directory);

}  // namespace heddle
