// Parameters filled from Hugging Face weights: each rank reads only its shards.
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

// For parallel::build. The model maps parameters to tensors; without one each parameter is the
// tensor of its name. Throws Error{input} naming the directory and the parameter when a tensor is missing or
// has another shape. On meta only names and shapes are compared.
HEDDLE_API ParameterSource hf_source(const std::filesystem::path& directory,
                                     std::shared_ptr<const HfWeights> weights,
                                     std::shared_ptr<const ModelSpec> model = nullptr);

// The name under which a tensor exists (by `has`), its own or an alternative; empty: none.
HEDDLE_API std::string name_there(const std::string& tensor, const ModelSpec* model,
                                  const std::function<bool(const std::string&)>& has);

// The tensors that no parameter of the units is filled from, whatever the reason; for a warning.
HEDDLE_API std::vector<std::string> unused(std::span<const std::string> names, const Units& units,
                                           const ModelSpec* model = nullptr);

}  // namespace heddle::checkpoint
