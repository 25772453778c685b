// SiTU, a softly bounded gated unit, and its derivatives.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/nn/activation.h"

namespace heddle::model {

// gate times up is the unit; by_gate and by_up are the derivatives of each factor by its own input.
struct SituFactors {
  at::Tensor gate, up, by_gate, by_up;  // by_up undefined: 1
};

// gate and up in the dtype of the arithmetic.
SituFactors situ_factors(const Situ& form, const at::Tensor& gate, const at::Tensor& up);

}  // namespace heddle::model
