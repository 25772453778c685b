// Attention on devices other than the CPU, by LibTorch's operators.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/nn/attention_core.h"

namespace heddle::model {

// As attend() for whole rows. Throws Error{not_built} for windows, soft caps and sinks.
at::Tensor attend_on_device(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const Heads& heads);

}  // namespace heddle::model
