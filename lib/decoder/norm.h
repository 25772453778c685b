// Helpers for building decoder modules: norms, biases, initial values, factors.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/decoder/description.h"
#include "heddle/model/module.h"
#include "heddle/nn/linear.h"

namespace heddle::decoder {

std::unique_ptr<Module> make_norm(const Norm& norm, int64_t width, const at::TensorOptions& options);

inline Linear::Bias bias_if(bool wanted) {
  return wanted ? Linear::Bias::zeros : Linear::Bias::none;
}

// Standard deviations of random initial weights.
struct FirstValues {
  double std = 0.02, residual = 0.02;  // residual: of projections that are added to the hidden states
};

inline Init normal(double std) {
  return {Init::Kind::normal, std};
}

inline at::Tensor times(const at::Tensor& x, double factor) {
  return factor == 1 ? x : x * factor;
}

}  // namespace heddle::decoder
