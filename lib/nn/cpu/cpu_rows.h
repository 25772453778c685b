// Shared by the CPU kernels of the layers: wide arithmetic for narrow dtypes, and work split over rows.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/base/widest.h"

namespace heddle::model {

// Arithmetic of fp64 is in fp64, of everything else in fp32.
template <class Number>
using Wide = std::conditional_t<std::is_same_v<Number, double>, double, float>;

inline at::ScalarType accumulation_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// Whether a heddle kernel supports it: on the CPU, contiguous, of a dtype of run_typed().
inline bool has_kernel(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  return tensor.is_cpu() && tensor.is_contiguous() &&
         (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble);
}

// Says whether a row kernel takes a matrix whose rows may have gaps; rows do not overlap.
inline bool has_row_kernel(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  return tensor.is_cpu() && tensor.dim() == 2 && tensor.stride(1) == 1 &&
         (tensor.size(0) <= 1 || tensor.stride(0) >= tensor.size(1)) &&
         (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble);
}

// Calls `body` with a number of the dtype's type.
template <class Body>
void run_typed(at::ScalarType dtype, const Body& body) {
  if (dtype == at::kFloat) return body(float{});
  if (dtype == at::kDouble) return body(double{});
  body(c10::BFloat16{});
}

// Splits [0, rows) among the intra-op threads; `width` numbers of work each.
template <class Body>
void over_rows(int64_t rows, int64_t width, const Body& body) {
  at::parallel_for(0, rows, std::max<int64_t>(1, (int64_t{1} << 15) / std::max<int64_t>(1, width)), body);
}

constexpr int64_t kFloats = 16;  // numbers of a widest register

// A sum in a fixed order for every instruction set: 16 partial sums, then their sum.
template <class Sum, class Term>
HEDDLE_INLINE Sum sum_of(int64_t count, const Term& term) {
  Sum sums[kFloats] = {};
  int64_t i = 0;
  for (; i + kFloats <= count; i += kFloats)
    for (int64_t j = 0; j < kFloats; ++j) sums[j] += term(i + j);
  for (int64_t j = 0; i < count; ++i, ++j) sums[j] += term(i);
  for (int64_t half = kFloats / 2; half > 0; half /= 2)
    for (int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  return sums[0];
}

// 16 numbers in registers: arithmetic on it is element by element, in the widest registers of the caller.
typedef float Floats __attribute__((vector_size(kFloats * sizeof(float)), aligned(4), may_alias));

inline const Floats& floats_at(const float* from) {
  return *reinterpret_cast<const Floats*>(from);
}

// Their sum in a fixed order.
HEDDLE_INLINE float total_of(const Floats& x) {
  float half[kFloats / 2];
  for (int64_t i = 0; i < kFloats / 2; ++i) half[i] = x[i] + x[i + kFloats / 2];
  return ((half[0] + half[4]) + (half[1] + half[5])) + ((half[2] + half[6]) + (half[3] + half[7]));
}

}  // namespace heddle::model
