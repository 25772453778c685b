// Where documents begin, as tensors: for layers whose tokens see those before them in other ways than
// attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace heddle::decoder {

// int64 [rows, sequence] on the device of the tokens.
struct DocumentMarks {
  at::Tensor document;  // which one a token is in, counted over the whole batch
  at::Tensor place;     // of the token in it, from 0
};

// documents: as in Batch, of rows * sequence tokens. Nothing is read on the host.
DocumentMarks marks_of(const at::Tensor& documents, int64_t rows, int64_t sequence,
                       const at::TensorOptions& like);

}  // namespace heddle::decoder
