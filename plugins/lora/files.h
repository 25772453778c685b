// Adapter files in PEFT's format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config.h"
#include "experts.h"
#include "file_layers.h"
#include "heddle/plugin/transform.h"

namespace heddle::lora {

// An adapter: the layer of the files, its input width, and the adapted layers. The first of them has A.
struct Adapted {
  struct Part {
    std::string path;
    int64_t outputs = 0;
    FileLayer in_files;
  };
  FileLayer layer;
  int64_t inputs = 0;
  std::vector<Part> parts;
};

// Returns adapter_model.safetensors, adapter_config.json and automodel_peft_config.json. Returns empty if
// PEFT cannot represent the adapters, and the reason in `why`: an adapter of only a part of a file layer, or
// adapters of experts beside layers whose block has another name in files.
std::optional<AddedFiles> peft_files(const Config& config, const std::vector<Adapted>& layers,
                                     const std::vector<AdaptedExperts>& experts, const TransformRun& run,
                                     std::string& why);

// Returns the first layer of a mixture that PEFT 0.21 mistakes for an expert of an older format. Empty: none.
std::string taken_for_experts(const std::vector<Adapted>& layers);

}  // namespace heddle::lora
