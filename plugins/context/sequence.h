// The part of a batch that a rank of cp holds, and the keys of other ranks that its tokens see.
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
  // A rank's part is split again into neighboring pieces under ring_ulysses.
  int piece = 0, pieces = 1;
  bool pads_apart = false;  // padding is a separate document, because some attention is not causal
};

// Positions of tokens (int64): the tokens of all ranks, one rank after another, in the order of the rows, and
// the inverse.
struct RowOrder {
  at::Tensor whole, parts;
};

// Rows of a batch before the split: their documents and their assignment to ranks.
class Rows {
 public:
  // documents: as in Batch, for rows of `length` tokens. Undefined: each row is one document.
  Rows(int64_t rows, int64_t length, const at::Tensor& documents, int ranks, Cut cut);

  // Selects the columns of `place` from x [rows, at most length]. Columns past the end of x are `padding`.
  // Returns a new tensor.
  at::Tensor columns(const at::Tensor& x, int64_t padding, const Place& place) const;

  // Range of the tokens of rank `other` that each token of `rank` sees, with rows concatenated: int32 [rows *
  // own, 2].
  at::Tensor visible_keys(int rank, int other, const AttentionOptions& options) const;

  // Order of the tokens of all places, on the host. pieces: as in Place.
  RowOrder order(int pieces) const;

 private:
  struct Row {
    std::vector<int32_t> documents;
    Assignment assignment;
  };
  const Row& row(int64_t index) const { return rows_[rows_.size() == 1 ? 0 : static_cast<size_t>(index)]; }

  int64_t count_, length_, own_;
  std::vector<Row> rows_;  // one for all rows if there are no documents
};

// Length after rows of `length` tokens are padded on the right.
int64_t padded_length(const Batch& batch, const Place& place);

// Splits tokens, labels, positions, padding and draws of a batch. Creates positions if there are none. Pads
// rows with token 0 without labels, as a separate document if there are documents. Documents stay those of
// whole rows.
void cut(Batch& batch, const Place& place);

// Rows of which a split batch is a part.
Rows rows_of(const Batch& batch, const Place& place);

}  // namespace heddle::context
