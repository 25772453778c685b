// Adapters as PEFT reads them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config.h"
#include "experts.h"
#include "heddle/plugin/transform.h"

namespace heddle::lora {

// An adapted layer: its path, and the shape of its weight.
struct Adapted {
  std::string path;
  std::vector<int64_t> shape;
};

// adapter_model.safetensors, adapter_config.json and automodel_peft_config.json. Empty: the files of the
// model hold a layer in another tensor, of which PEFT makes one layer; `why` then names it.
std::optional<AddedFiles> peft_files(const Config& config, const std::vector<Adapted>& layers,
                                     const std::vector<AdaptedExperts>& experts, const TransformRun& run,
                                     std::string& why);

}  // namespace heddle::lora
