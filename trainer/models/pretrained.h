// A model on disk: what it is, and where its values come from.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/family.h"
#include "heddle/parallel/build.h"
#include "heddle/plugin/registry.h"
#include "lib/checkpoint/huggingface/hf_origin.h"
#include "trainer/models/find_model.h"
#include "trainer/recipe/sections.h"

namespace heddle {

struct Pretrained {
  ModelPlace place;
  std::shared_ptr<const ModelSpec> spec;
  checkpoint::HfOrigin origin;     // what an export carries over
  std::vector<std::string> names;  // of the tensors that are there
  ParameterSource source;          // for parallel::build
};

// Reads config.json and the headers of the weights, or the manifest, not the weights. PATH is what
// find_model() takes. Throws Error{input} naming the file and the key or tensor.
HEDDLE_API Pretrained open_pretrained(const std::filesystem::path& path, PluginRegistry& plugins);
// The same with keys in place of those of its config.json, as read_overridden() says.
Pretrained open_pretrained(const std::filesystem::path& path, PluginRegistry& plugins,
                           const ConfigOverrides& overrides, std::vector<std::string>& warnings);

}  // namespace heddle
