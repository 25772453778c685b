// A small decoder made of heddle's layers: its configuration keys and its units.
#pragma once

#include <string>

#include "heddle/sdk.h"

namespace faults {

struct Config {
  int64_t vocab_size = 29, hidden_size = 12, num_layers = 2, max_positions = 32;
  double scale = 0.5;
  std::string dtype;
};

heddle::Units make_units(const Config& config, const at::TensorOptions& options);

}  // namespace faults
