// What GPUs can do at best, by their names.
#pragma once

#include <string>
#include <vector>

namespace heddle {

// As the vendors publish it; 0: not known.
struct Gpu {
  const char* name;     // "H100"
  double half, single;  // dense products, TFLOP/s: of 16-bit floats as AutoModel lists them; float32, no TF32
  double memory, bandwidth;  // GB; TB/s
  double peak(bool in_16_bits) const { return (in_16_bits ? half : single) * 1e12; }
};

// The GPU of a device's name: "NVIDIA A40" is an A40, "NVIDIA RTX A4000" is not. Null: not in the table.
const Gpu* gpu_of(const std::string& device);
// The GPU of exactly this name, in any case of letters.
const Gpu* gpu_named(const std::string& name);
std::vector<std::string> gpu_names();

}  // namespace heddle
