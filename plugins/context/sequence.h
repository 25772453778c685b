// Which tokens of a sequence a rank of the axis cp holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/model/batch.h"

namespace heddle::context {

// The sequence is padded on the right until its parts are equal: with tokens 0 without labels, which no token
// before them attends to.
enum class Cut {
  // Of 2 * ranks chunks a rank has the r-th and the r-th from the end: with a causal mask, ranks have equal
  // work.
  head_tail,
  contiguous  // rank r has the r-th of `ranks` chunks
};

struct Place {
  int rank = 0, ranks = 1;
  Cut cut = Cut::head_tail;
};

// The length that `length` tokens are padded to.
int64_t padded_length(int64_t length, const Place& place);

// This rank's columns of x [rows, length], padded with `padding`. A new tensor.
at::Tensor own_columns(const at::Tensor& x, int64_t padding, const Place& place);

// Tokens, labels and positions of a batch, cut. Positions are created if absent. Throws
// Error{not_built} for a batch with documents.
void cut(Batch& batch, const Place& place);

}  // namespace heddle::context
