// Where the parameters of layers with experts are in the files of a Hugging Face directory.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "heddle/model/stored.h"
#include "model_config.h"

namespace heddle::llama {

// Files have a tensor for each expert and product ("mlp.experts.3.up_proj.weight"; Mixtral:
// "block_sparse_moe.experts.3.w3.weight"), memory one for all. Empty: the parameter is a tensor of its name.
StoredParts stored_parts(const ModelConfig& config, const std::string& parameter,
                         std::span<const int64_t> shape);

}  // namespace heddle::llama
