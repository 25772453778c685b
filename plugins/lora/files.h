// Adapters as PEFT reads them.
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

// An adapter: the layer of the files, the width of its input, and the layers that are adapted; the first has
// A.
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

// adapter_model.safetensors, adapter_config.json and automodel_peft_config.json. Empty: PEFT has no such
// adapters; `why` then says which: of a part of a layer of the files alone, or of experts beside layers whose
// block has another name there.
std::optional<AddedFiles> peft_files(const Config& config, const std::vector<Adapted>& layers,
                                     const std::vector<AdaptedExperts>& experts, const TransformRun& run,
                                     std::string& why);

// Of the layers of a mixture, the first that PEFT 0.21 takes for an expert of an older form; empty: none.
std::string taken_for_experts(const std::vector<Adapted>& layers);

}  // namespace heddle::lora
