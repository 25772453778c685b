// The named tensors of one microbatch that need no gradient: tokens, labels, positions, document boundaries.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"

namespace heddle {

class WeightGradients;

// Undefined tensors are absent. The members are fixed, because names are looked up on the hot path.
class HEDDLE_API Batch {
 public:
  at::Tensor tokens;     // int64 [batch, sequence]
  at::Tensor labels;     // int64 [batch, sequence]; kIgnore: no loss there. Absent: the model returns logits
  at::Tensor positions;  // int64 [batch, sequence]; absent: 0, 1, 2, ...
  at::Tensor extra;      // whatever a foreign model wants

  // Where layers leave weight gradients when this microbatch's backward is split; null: it is whole.
  WeightGradients* weight_gradients = nullptr;

  static constexpr int64_t kIgnore = -100;
};

}  // namespace heddle
