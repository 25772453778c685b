// The model's last unit, where every backward begins.
#pragma once

#include <memory>

#include "heddle/model/unit.h"

namespace heddle::parallel {

using GradientFactor = std::shared_ptr<double>;

// Wraps the unit: the gradients of its outputs are multiplied by the factor, which is 1 until it is set
// (GradientAverage::gradient_divisor). Outputs keep their values.
GradientFactor multiply_gradients(std::unique_ptr<Unit>& unit);

}  // namespace heddle::parallel
