// Small Llama models that most tests train, built without opening the llama plugin.
#pragma once

#include <filesystem>

#include "heddle/base/error.h"
#include "lib/checkpoint/huggingface/read_config.h"
#include "plugins/llama/config/model_config.h"
#include "plugins/llama/describe.h"

namespace heddle {

using llama::make_units;
using llama::ModelConfig;
using llama::read_model_config;
using llama::to_config_json;

// Reads a config.json like engine::read_model.
inline ModelConfig read_model_config(const std::filesystem::path& config_json) {
  const Node keys = checkpoint::read_config_json(config_json);
  try {
    return llama::read_model_config(keys, UnknownKeys::passed_over);
  } catch (const Error& error) {
    throw Error(ErrorCode::input, error.where(), error.message(), error.hint());
  }
}

}  // namespace heddle
