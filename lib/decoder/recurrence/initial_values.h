// Initial values of gates and convolutions, as in transformers.
#pragma once

#include <cmath>

#include "heddle/model/slot.h"

namespace heddle::decoder {

// Uniform in [0, 1).
inline double uniform_draw(const InitElement& element) {
  return 0.5 * std::erfc(-element.normal / std::sqrt(2.0));
}

// Inverse softplus of a step that is log-uniform in [0.001, 0.1), as in Mamba.
inline double initial_dt_bias(const InitElement& element) {
  const double step = 0.001 * std::pow(100.0, uniform_draw(element));
  return step + std::log(-std::expm1(-step));
}

// Uniform in [-1, 1) divided by the root of the number of taps, as PyTorch initializes a depthwise
// convolution.
inline double initial_tap(const InitElement& element) {
  return (2 * uniform_draw(element) - 1) / std::sqrt(static_cast<double>(element.shape.back()));
}

}  // namespace heddle::decoder
