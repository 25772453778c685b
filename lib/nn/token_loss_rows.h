// Shared by losses from logits and from hidden states: labels, and the loss of a block of rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/mesh/communicator.h"
#include "heddle/nn/token_loss.h"

namespace heddle::model {

// float64 for float64, else float32.
at::ScalarType wide(at::ScalarType dtype);

// whole: of the vocabulary, whose loss a device's kernel may compute.
int64_t rows_per_block(const at::Tensor& rows, int64_t vocabulary, bool whole);

struct Labels {
  at::Tensor counted;  // wide [tokens, 1]: 1 if the label counts
  at::Tensor index;    // int64 [tokens, 1]: the label's column, 0 if it does not count or is on another rank
  at::Tensor hit;      // wide [tokens, 1]: -1; 0 if the label's column is on another rank
  Labels block(int64_t row, int64_t rows) const {
    return {counted.narrow(0, row, rows), index.narrow(0, row, rows), hit.narrow(0, row, rows)};
  }
};

Labels read_labels(const at::Tensor& labels, int64_t vocabulary, at::ScalarType dtype);
// Reads the labels of the columns [first, first + held) only.
Labels read_labels(const at::Tensor& labels, const VocabularyPart& part, int64_t held, at::ScalarType dtype);

// Converts log-probabilities to the gradient of the block's loss with respect to its logits.
at::Tensor logit_gradient(at::Tensor log_p, const Labels& labels);

// The log-probabilities of a block, the sum of its losses and, of a split vocabulary, the logarithms of its
// rows' sums.
struct BlockLoss {
  at::Tensor log_p, sum, log_z = {};
};

BlockLoss loss_of(const at::Tensor& logits, const Labels& labels);
// Every rank adds the same numbers in the same order, so all get the same bits.
BlockLoss loss_of(at::Tensor logits, const Labels& labels, Communicator& ranks);

// The sum of the losses of a block of logits, which become its gradient if that is wanted. Undefined: the
// device has no kernel for them, and nothing is done.
at::Tensor loss_on_device(const at::Tensor& logits, const Labels& labels, double soft_cap,
                          bool with_gradient);

// Columns of the rank with the most. Blocks are equal on every rank, also if the vocabulary does not divide.
int64_t columns_of(const VocabularyPart& part);

}  // namespace heddle::model
