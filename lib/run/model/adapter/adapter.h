// Adapters in PEFT's file format (LoRA, Hu et al. 2021): updates of the linear layers of a base model.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "heddle/checkpoint/safetensors.h"
#include "heddle/model/family.h"
#include "heddle/parallel/build.h"
#include "lib/run/model/adapter/adapter_config.h"

namespace heddle {

inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";

// Returns the source of the base with the adapter in DIRECTORY added: W + s B A, computed in float32 and
// rounded once; with DoRA, each row is scaled to its trained length. Throws Error{input} for a damaged
// adapter and for one that does not fit the model.
ParameterSource with_adapter(ParameterSource base, const std::filesystem::path& directory,
                             std::shared_ptr<const ModelSpec> model);

}  // namespace heddle
