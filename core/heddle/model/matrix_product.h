// Products of matrices, by the library that is fastest for them on this processor.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"

namespace heddle::model {

// Large products of float32 on a processor whose widest registers MKL leaves alone (AMD's with AVX-512) go to
// LibTorch's oneDNN, about twice as fast there; one row times a linear layer's weight goes to a kernel of our
// own (row_product_cpu.h), because MKL's is not vectorized on AMD's; all others are at::mm. The choice is a
// function of the machine and the shapes, so that a run repeats its bits;
// at::globalContext().setUserEnabledMkldnn(false) takes it back. Below autograd; on any device, of any dtype.

// a b + plus: [m, k] and [k, n] to [m, n]. plus: undefined, one row [n], or [m, n].
HEDDLE_API at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& plus = {});

// out = a b + plus.
HEDDLE_API void matrix_product_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b,
                                    const at::Tensor& plus = {});

// sum += a b.
HEDDLE_API void add_matrix_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b);

}  // namespace heddle::model
