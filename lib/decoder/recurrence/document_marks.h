// Document numbers and positions of tokens as tensors, for layers that mix tokens without attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace heddle::decoder {

// int64 [rows, sequence] on the device of the tokens.
struct DocumentMarks {
  at::Tensor document;  // document of a token, counted over the whole batch
  at::Tensor place;     // position of the token in its document, from 0
};

// documents: as in Batch, for rows * sequence tokens. Reads nothing back to the host.
DocumentMarks marks_of(const at::Tensor& documents, int64_t rows, int64_t sequence,
                       const at::TensorOptions& like);

}  // namespace heddle::decoder
