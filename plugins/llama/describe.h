// Layer descriptions of a configuration.
#pragma once

#include "config/model_config.h"
#include "heddle/decoder/description.h"
#include "heddle/decoder/family.h"

namespace heddle::llama {

decoder::Model describe(const ModelConfig& config);

// Returns where the parameters are in the files of a Hugging Face directory.
decoder::Files files_of(const ModelConfig& config);

// Creates the units of that description.
Units make_units(const ModelConfig& config, const at::TensorOptions& options);

}  // namespace heddle::llama
