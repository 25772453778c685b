// The models of tests/golden/quantized (make_quantized.py), and modified copies of these models.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/folder.h"
#include "checkpoint/write_safetensors.h"
#include "heddle/checkpoint/safetensors.h"

namespace heddle::tests {

using Tensors = std::map<std::string, at::Tensor>;

inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/golden/quantized" / name;
}

inline Tensors read_tensors(const std::filesystem::path& file) {
  const SafetensorsFile stored(file);
  Tensors out;
  for (const auto& [name, tensor] : stored.tensors()) {
    out[name] = at::empty(tensor.shape, at::TensorOptions(tensor.dtype));
    stored.read(name, std::vector<int64_t>(tensor.shape.size(), 0), out[name]);
  }
  return out;
}

inline void write_model(const std::filesystem::path& directory, const nlohmann::ordered_json& config,
                        const Tensors& tensors) {
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "config.json") << config.dump(2);
  const std::vector<std::pair<std::string, at::Tensor>> listed(tensors.begin(), tensors.end());
  write_safetensors(directory / "model.safetensors", listed);
}

inline nlohmann::ordered_json config_of(const std::string& name) {
  return nlohmann::ordered_json::parse(std::ifstream(golden(name) / "config.json"));
}

// Returns the directory of the same model with dequantized weights.
inline std::filesystem::path plain_model(const Folder& folder, const std::string& name) {
  nlohmann::ordered_json config = config_of(name);
  config.erase("quantization_config");
  if (config.contains("text_config")) config["text_config"].erase("quantization_config");
  const std::filesystem::path directory = folder / ("plain_" + name);
  write_model(directory, config, read_tensors(golden(name) / "plain.safetensors"));
  return directory;
}

}  // namespace heddle::tests
