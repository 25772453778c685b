// Fills parameters from Hugging Face weights. Each rank reads only its shards.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/checkpoint/safetensors.h"
#include "heddle/model/family.h"
#include "heddle/parallel/build.h"

namespace heddle::checkpoint {

// Returns a source for parallel::build(). The model maps parameters to tensors; without a model each
// parameter is the tensor of the same name. Throws Error{input} naming the directory and the parameter if a
// tensor is missing or has a different shape. On meta only names and shapes are compared.
HEDDLE_API ParameterSource hf_source(const std::filesystem::path& directory,
                                     std::shared_ptr<const HfWeights> weights,
                                     std::shared_ptr<const ModelSpec> model = nullptr);

// Returns the name under which a tensor exists according to `has`, its own name or an alternative, or "".
HEDDLE_API std::string name_there(const std::string& tensor, const ModelSpec* model,
                                  const std::function<bool(const std::string&)>& has);

// Returns the tensors from which no parameter of the units is filled, for a warning.
HEDDLE_API std::vector<std::string> unused(std::span<const std::string> names, const Units& units,
                                           const ModelSpec* model = nullptr);

}  // namespace heddle::checkpoint
