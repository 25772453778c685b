// Batch, the named tensors of one microbatch: tokens, labels, positions, document boundaries.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "heddle/base/export.h"

namespace heddle {

class SideOutputs;
class WeightGradients;

// The inputs of one microbatch, which need no gradients. An undefined tensor is absent. The members are fixed
// so that the forward looks up no names. Code that copies, splits or compares a batch iterates over
// kBatchMembers.
class HEDDLE_API Batch {
 public:
  at::Tensor tokens;     // int64 [batch, sequence]
  at::Tensor labels;     // int64 [batch, sequence]; kIgnore: no loss. Absent: the model returns logits
  at::Tensor positions;  // int64 [batch, sequence]; absent: counted from 0 in each document
  // int32 [documents + 1]: the offset of each document in the concatenated rows, then the total number of
  // tokens. Ascending from 0. Every row begins a document, so no document crosses rows. Absent: each row is
  // one document.
  at::Tensor documents;
  // bool [batch, sequence]: true for padding. A padding token has no label, no other token attends to it, and
  // routers, capacities and means over tokens skip it (NeMo AutoModel's token_mask, inverted). A token whose
  // label is masked, such as a prompt token, is not padding. Absent: no padding.
  at::Tensor padding;
  // int64 [batch, sequence]: the key of each token's random numbers in this step (heddle/nn/dropout.h). The
  // key depends on the seed, the step, the row of the global batch and the position in the row, but not on
  // the parallelism. Absent: nothing is random, as in validation or if no module declares
  // ModuleTraits::draws.
  at::Tensor draws;
  at::Tensor extra;  // input of foreign models

  // Row length that `documents` refers to if `tokens` has only a part of each row (context parallelism). 0:
  // the row length of `tokens`.
  int64_t whole_sequence = 0;
  // The step of the run, from 0. In a validation, the next step.
  int64_t step = 0;

  // Collects deferred weight gradients if the backward of this microbatch is split; null if it is not.
  WeightGradients* weight_gradients = nullptr;
  // Collects auxiliary losses and metrics of this microbatch; null discards them.
  SideOutputs* side_outputs = nullptr;

  static constexpr int64_t kIgnore = -100;
};

// How to split a tensor of a batch into microbatches.
enum class RowCut {
  rows,  // by rows of dim 0
  // By rows of dim 0 if there is one row per sample; otherwise each microbatch gets the whole tensor.
  rows_if_many,
  documents  // the documents of the microbatch's rows, with offsets from its first token
};

// A tensor of a batch.
struct BatchMember {
  const char* name;
  at::Tensor Batch::*tensor;
  RowCut cut;
  bool shapes;  // whether the output shapes of a stage may depend on its sizes
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

// Returns the positions of the batch, or positions counted from 0 in each document; int64 [batch, sequence]
// on the tokens' device.
HEDDLE_API at::Tensor positions_of(const Batch& batch);

// Returns the number of tokens that are not padding. Waits for the device if there is padding.
HEDDLE_API int64_t text_tokens_of(const Batch& batch);

// Throws Error{input} if `documents` is invalid. Reads its values, so the batch must be on the host.
HEDDLE_API void check_documents(const Batch& batch);

// Throws Error{input} if `padding` is not bool [batch, sequence] or if a padding token has a label. Reads the
// values, so the batch must be on the host.
HEDDLE_API void check_padding(const Batch& batch);

// Returns the documents of the rows [first, first + count), each of `sequence` tokens, with offsets from the
// first of these rows. int32 on the host.
HEDDLE_API at::Tensor documents_of_rows(const at::Tensor& documents, int64_t first, int64_t count,
                                        int64_t sequence);

}  // namespace heddle
