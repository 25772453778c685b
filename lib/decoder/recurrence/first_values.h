// First values of gates and convolutions, as transformers draws them.
#pragma once

#include <cmath>

#include "heddle/model/slot.h"

namespace heddle::decoder {

// In [0, 1).
inline double uniform_of(const InitElement& element) {
  return 0.5 * std::erfc(-element.normal / std::sqrt(2.0));
}

// The inverse of softplus of a step that is uniform in its logarithm in [0.001, 0.1), as Mamba draws it.
inline double open_of_step(const InitElement& element) {
  const double step = 0.001 * std::pow(100.0, uniform_of(element));
  return step + std::log(-std::expm1(-step));
}

// Uniform between -1 and 1 over the root of the taps, as PyTorch begins a convolution of single channels.
inline double tap_of(const InitElement& element) {
  return (2 * uniform_of(element) - 1) / std::sqrt(static_cast<double>(element.shape.back()));
}

}  // namespace heddle::decoder
