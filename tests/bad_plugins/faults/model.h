// A small decoder made of heddle's layers: its configuration keys and its units.
#pragma once

#include <string>

#include "fault.h"
#include "heddle/sdk.h"

namespace faults {

struct Config {
  int64_t vocab_size = 29, hidden_size = 12, num_layers = 2, max_positions = 32;
  double scale = 0.5;
  std::string dtype;
};

// Whether each layer has four experts, of which a token uses two.
inline bool has_experts() {
  return is("experts") || is("experts_by_held");
}

heddle::Units make_units(const Config& config, const at::TensorOptions& options);

}  // namespace faults
