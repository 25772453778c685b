// How fast one thread multiplies matrices: the peak of a CPU.
#pragma once

#include <c10/core/ScalarType.h>

#include "heddle/base/export.h"

namespace heddle::model {

// Operations a second of one intra-op thread while all of them multiply: the best of some short products
// (matrix_product), by the processor time of the thread. So other processes, and threads that wait for a
// core, do not lower it. Takes about 20 ms of each thread.
HEDDLE_API double product_rate_cpu(c10::ScalarType dtype);

}  // namespace heddle::model
