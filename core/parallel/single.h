// The built-in strategy for one data-parallel rank, and the oracle that every other strategy is compared
// with.
#pragma once

#include <memory>

#include "heddle/parallel/strategy.h"

namespace heddle::parallel {

// Whole parameters in their storage dtype, gradients where autograd leaves them.
HEDDLE_API std::unique_ptr<IStrategy> make_single();

}  // namespace heddle::parallel
