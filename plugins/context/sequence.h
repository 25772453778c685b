// The part of a batch that a rank of the axis cp holds, and which keys of other ranks its tokens see.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "assignment.h"
#include "heddle/model/batch.h"
#include "heddle/nn/attention_core.h"

namespace heddle::context {

struct Place {
  int rank = 0, ranks = 1;
  Cut cut = Cut::balanced;
  // The part of a rank is split once more, into neighbouring pieces (ring_ulysses).
  int piece = 0, pieces = 1;
  bool pads_apart = false;  // padding is a document of its own: some attention is not causal
};

// Places of tokens, int64: those of all ranks' own tokens, one rank after another, in the order of the rows,
// and the inverse.
struct RowOrder {
  at::Tensor whole, parts;
};

// The rows of a batch before the cut: their documents and who holds which of their tokens.
class Rows {
 public:
  // documents: as in Batch, of rows of `length` tokens; absent: each row is one.
  Rows(int64_t rows, int64_t length, const at::Tensor& documents, int ranks, Cut cut);

  // x [rows, at most length]: the columns of a place, `padding` where x is shorter. A new tensor.
  at::Tensor columns(const at::Tensor& x, int64_t padding, const Place& place) const;

  // Which of the tokens of `other` each token of `rank` sees, rows laid end to end: int32 [rows * own, 2].
  at::Tensor visible_keys(int rank, int other, const AttentionOptions& options) const;

  // Of the tokens of all places, on the host; pieces: as in Place.
  RowOrder order(int pieces) const;

 private:
  struct Row {
    std::vector<int32_t> documents;
    Assignment assignment;
  };
  const Row& row(int64_t index) const { return rows_[rows_.size() == 1 ? 0 : static_cast<size_t>(index)]; }

  int64_t count_, length_, own_;
  std::vector<Row> rows_;  // one for all where there are no documents
};

// The length that rows of `length` tokens are padded to on the right.
int64_t padded_length(const Batch& batch, const Place& place);

// Tokens, labels, positions, padding and draws of a batch, cut; positions are made where there are none. Rows
// are padded with tokens 0 without a label, a document of their own where there are documents. Those stay the
// whole rows'.
void cut(Batch& batch, const Place& place);

// The rows that a cut batch is a part of.
Rows rows_of(const Batch& batch, const Place& place);

}  // namespace heddle::context
