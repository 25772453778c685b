// Choice of keys of one layer, shared by the layer, its attention and the next layer.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle::decoder {

// Valid while the layer runs. Undefined: a query sees all earlier keys.
struct ChosenKeys {
  at::Tensor keys;        // Heads::chosen
  bool for_next = false;  // the next layer uses the same choice
};

}  // namespace heddle::decoder
