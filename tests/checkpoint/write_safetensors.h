// Writes a safetensors file in one call.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/checkpoint/safetensors/safetensors_writer.h"

namespace heddle::tests {

// Writes tensors in the order of the list. Throws Error{io}.
inline void write_safetensors(const std::filesystem::path& file,
                              std::span<const std::pair<std::string, at::Tensor>> tensors) {
  std::vector<checkpoint::TensorToWrite> declared;
  for (const auto& [name, tensor] : tensors)
    declared.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  checkpoint::SafetensorsWriter writer(file, declared);
  for (const auto& [name, tensor] : tensors) writer.append(tensor);
  writer.finish();
}

}  // namespace heddle::tests
