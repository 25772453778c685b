// Sums of squares and of powers in fp64.
#pragma once

#include <cstdint>

namespace heddle::train {

// Computes the same bits on every processor: lanes are added in one order, and no product is fused with a
// sum. Of float, double, c10::BFloat16 and c10::Half.
template <class Number>
double squares_cpu(const Number* values, int64_t count);

// The sum of |value / scale| to a power, in the order of the values.
double powers_cpu(const double* values, int64_t count, double scale, double power);

}  // namespace heddle::train
