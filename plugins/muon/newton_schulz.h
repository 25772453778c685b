// The matrix with the singular vectors of another and singular values near 1.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle::muon {

// Five steps of a Newton-Schulz iteration with the coefficients of dion (Jordan et al. 2024), in the dtype of
// `matrix`. The same bits for the same numbers.
at::Tensor newton_schulz(const at::Tensor& matrix, double epsilon);

}  // namespace heddle::muon
