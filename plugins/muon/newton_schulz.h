// Orthogonalization of a matrix: same singular vectors, singular values near 1.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle::muon {

// Runs five steps of a Newton-Schulz iteration with the coefficients of dion (Jordan et al. 2024), in the
// dtype of `matrix`. Deterministic: equal inputs give equal bits.
at::Tensor newton_schulz(const at::Tensor& matrix, double epsilon);

}  // namespace heddle::muon
