// The sum of the token losses: cross entropy in fp32 over the labels that count.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"

namespace heddle::model {

// logits [tokens, vocabulary], labels int64 (as many as tokens; Batch::kIgnore: no loss). Returns fp32 [1]
// (fp64 for fp64). Works by blocks of rows: the fp32 logits of the whole batch never exist at once;
// log-probabilities are not kept.
HEDDLE_API at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& labels);

// The same with logits = hidden W^T, hidden [tokens, width], weight [vocabulary, width]; logits exist for one
// block of rows only. Gradients are computed with the loss while the block is at hand (the method of Liger
// kernels, Hsu et al. 2024), and scaled in the backward.
HEDDLE_API at::Tensor linear_token_loss(const at::Tensor& hidden, const at::Tensor& weight,
                                        const at::Tensor& labels);

}  // namespace heddle::model
