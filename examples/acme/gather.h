// Rows of a weight that the ranks of an axis split, gathered for one product.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/mesh/communicator.h"

namespace acme {

// Rows of one rank. The first ranks hold one more if the ranks do not divide them.
struct Rows {
  int64_t begin, count, most;
};
Rows rows_of(int64_t rows, int ranks, int rank);

// Gathers all rows [rows, ...]. part: this rank's rows [count, ...]. Ranks have different samples, so the
// gradient of a part is the sum over the ranks.
at::Tensor gather_rows(const at::Tensor& part, int64_t rows, heddle::Communicator& ranks);

}  // namespace acme
