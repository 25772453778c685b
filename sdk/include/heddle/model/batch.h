// The named tensors of one microbatch that need no gradient: tokens, labels, positions, document boundaries.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "heddle/base/export.h"

namespace heddle {

class SideOutputs;
class WeightGradients;

// Undefined tensors are absent. The members are fixed, so that the hot path looks up no names; code that
// copies, cuts or compares a batch uses kBatchMembers.
class HEDDLE_API Batch {
 public:
  at::Tensor tokens;  // int64 [batch, sequence]
  at::Tensor labels;  // int64 [batch, sequence]; kIgnore: no loss there. Absent: the model returns logits
  at::Tensor
      positions;  // int64 [batch, sequence]; absent: 0, 1, 2, ... from the first token of each document
  // int32 [documents + 1]: where each document begins in the tokens of all rows laid end to end, and at the
  // end their number. Ascending, from 0. Every row begins a document, so none reaches into the next row.
  // Absent: each row is one document.
  at::Tensor documents;
  // bool [batch, sequence]: true where a token only fills a row. It has no label, no token of the text sees
  // it, and routers, capacities and means over tokens leave it out (NeMo AutoModel's token_mask, inverted). A
  // token whose label is masked, such as a prompt's, is text. Absent: every token is text.
  at::Tensor padding;
  // int64 [batch, sequence]: a key of each token for random numbers of this step (heddle/nn/dropout.h), which
  // follows from the seed, the step, the row of the global batch and the place in it, on every topology
  // alike. Absent: nothing is random, as in validation and where no module declares ModuleTraits::draws.
  at::Tensor draws;
  at::Tensor extra;  // for foreign models

  // The rows' length as `documents` counts it, where tokens hold a part of each row (context parallelism); 0:
  // that of tokens.
  int64_t whole_sequence = 0;
  // The step of the run that it belongs to, from 0; of a validation: the next one.
  int64_t step = 0;

  // Where layers leave weight gradients when this microbatch's backward is split; null: it is whole.
  WeightGradients* weight_gradients = nullptr;
  // Collects auxiliary losses and metrics of this microbatch; null: they are not collected.
  SideOutputs* side_outputs = nullptr;

  static constexpr int64_t kIgnore = -100;
};

// How a tensor of a batch is cut into microbatches of rows.
enum class RowCut {
  rows,          // along dim 0
  rows_if_many,  // along dim 0 if it has a row for each sample, else whole in every microbatch
  documents      // the documents of the rows, counted from their first token
};

struct BatchMember {
  const char* name;
  at::Tensor Batch::*tensor;
  RowCut cut;
  bool shapes;  // a stage's outputs may depend on its sizes
};

// All tensors of a batch.
inline constexpr std::array<BatchMember, 7> kBatchMembers = {{
    {"tokens", &Batch::tokens, RowCut::rows, true},
    {"labels", &Batch::labels, RowCut::rows, true},
    {"positions", &Batch::positions, RowCut::rows, true},
    {"documents", &Batch::documents, RowCut::documents, false},
    {"padding", &Batch::padding, RowCut::rows, false},
    {"draws", &Batch::draws, RowCut::rows, false},
    {"extra", &Batch::extra, RowCut::rows_if_many, true},
}};
static_assert(sizeof(Batch) ==
                  kBatchMembers.size() * sizeof(at::Tensor) + 2 * sizeof(int64_t) + 2 * sizeof(void*),
              "a tensor of Batch is missing in kBatchMembers");

inline int64_t whole_sequence_of(const Batch& batch) {
  return batch.whole_sequence > 0 ? batch.whole_sequence : batch.tokens.size(1);
}

// The batch's positions, or those counted from the first token of each document; int64 [batch, sequence] on
// the tokens' device.
HEDDLE_API at::Tensor positions_of(const Batch& batch);

// The tokens of the batch that are text. Waits for the device where there is padding.
HEDDLE_API int64_t text_tokens_of(const Batch& batch);

// Throws Error{input} where `documents` breaks its rule. Reads them: for a batch on the host.
HEDDLE_API void check_documents(const Batch& batch);

// Throws Error{input} where `padding` is not bool [batch, sequence], or has a label. Reads it: for a batch on
// the host.
HEDDLE_API void check_padding(const Batch& batch);

// The documents of the rows [first, first + count) of `sequence` tokens, counted from their first token.
// int32 on the host.
HEDDLE_API at::Tensor documents_of_rows(const at::Tensor& documents, int64_t first, int64_t count,
                                        int64_t sequence);

}  // namespace heddle
