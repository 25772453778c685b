// The choice of keys of one layer, between the layer, its attention and the next layer.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle::decoder {

// While the layer runs. Undefined: a query sees all keys before it.
struct ChosenKeys {
  at::Tensor keys;        // Heads::chosen
  bool for_next = false;  // the next layer sees the same keys
};

}  // namespace heddle::decoder
