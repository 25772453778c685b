// A weight whose rows lie on the ranks of an axis, whole for one product.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/mesh/communicator.h"

namespace acme {

// The rows of one rank; the first ranks hold one more where the ranks do not divide them.
struct Rows {
  int64_t begin, count, most;
};
Rows rows_of(int64_t rows, int ranks, int rank);

// part: this rank's rows [count, ...]. Returns all of them [rows, ...]. Ranks have other samples, so the
// gradient of a part is the sum over the ranks.
at::Tensor gather_rows(const at::Tensor& part, int64_t rows, heddle::Communicator& ranks);

}  // namespace acme
