// Parameters filled from Hugging Face weights: each rank reads its shards and nothing else.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/checkpoint/safetensors.h"
#include "heddle/model/unit.h"
#include "heddle/parallel/build.h"

namespace heddle::checkpoint {

// For parallel::build. Throws Error{input} naming the directory and the parameter when a tensor is missing or
// has another shape. A tied head is one parameter, "model.embed_tokens.weight"; a file that holds it as
// "lm_head.weight" only is read too. On meta only names and shapes are compared.
HEDDLE_API ParameterSource hf_source(const std::filesystem::path& directory,
                                     std::shared_ptr<const HfWeights> weights);

// A tied head is the embedding; files may hold either.
inline constexpr const char* kEmbedding = "model.embed_tokens.weight";
inline constexpr const char* kHead = "lm_head.weight";

// Those of the tensors' names that no parameter of the units is filled from: worth a warning.
HEDDLE_API std::vector<std::string> unused(std::span<const std::string> names, const Units& units);

}  // namespace heddle::checkpoint
