// An adapter as PEFT saves it (LoRA, Hu et al. 2021): differences to the linear layers of a base model.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "heddle/checkpoint/safetensors.h"
#include "heddle/model/family.h"
#include "heddle/parallel/build.h"

namespace heddle {

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";

// What adapter_config.json says.
struct AdapterConfig {
  std::string base;      // base_model_name_or_path; empty: none
  double alpha = 8;      // lora_alpha
  bool by_root = false;  // use_rslora: alpha / sqrt(r) in place of alpha / r
  bool by_rows = false;  // use_dora: rows of the sum have trained lengths
};

// Throws Error{input} at the file for what is no LoRA, and Error{not_built} for forms that are not read.
AdapterConfig read_adapter_config(const std::filesystem::path& directory);

// The source of the base with the adapter in DIRECTORY added: W + s B A, computed in float32 and rounded
// once; of DoRA in rows of the trained lengths. Throws Error{input} for a damaged adapter and for one that
// does not fit the model.
ParameterSource with_adapter(ParameterSource base, const std::filesystem::path& directory,
                             std::shared_ptr<const ModelSpec> model);

}  // namespace heddle
