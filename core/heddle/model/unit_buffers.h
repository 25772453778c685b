// Tensors of a unit that its forward changes and no gradient reaches.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "heddle/base/export.h"

namespace heddle {

// What a unit is besides, if it has such tensors: running statistics of a foreign model's norms. Heddle's own
// layers have none. Found by dynamic_cast.
class HEDDLE_API UnitBuffers {
 public:
  virtual ~UnitBuffers();
  // Handles of the unit's own tensors, always the same ones in the same order.
  virtual std::vector<at::Tensor> buffers() = 0;
};

}  // namespace heddle
