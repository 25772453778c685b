// The sum of squares of floats in fp64, compiled for several CPUs.
#pragma once

#include <cstdint>

namespace heddle::train {

// The same bits on every processor: the lanes are added in one order, and a product of two floats is exact in
// fp64.
double squares_cpu(const float* values, int64_t count);

}  // namespace heddle::train
