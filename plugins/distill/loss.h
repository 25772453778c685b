// Cross entropy and the divergence from a teacher, by blocks of tokens (Hinton et al. 2015).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/nn/token_loss.h"

namespace heddle::distill {

// What a head gives to a loss: hidden [tokens, width] and the head's weight [vocabulary, width], or logits
// [tokens, vocabulary] where it computes more than their product. Of a split vocabulary its rows or columns.
struct HeadInput {
  at::Tensor hidden, weight, logits;
  double soft_cap = 0;  // of the logits, as in TokenLoss
  int64_t columns() const { return logits.defined() ? logits.size(1) : weight.size(0); }
};

struct LossOptions {
  double ratio = 0.5, temperature = 1;
  int64_t chunk = 0;                            // tokens of a block; 0: as many as fit
  const model::VocabularyPart* part = nullptr;  // null: the vocabulary is whole
};

// Sums over the tokens with a label, fp32 [1] (fp64 for fp64).
struct Distilled {
  at::Tensor loss;  // (1 - ratio) ce + ratio kd, with a gradient for the student's tensors
  at::Tensor ce;    // of the labels; 0 for ratio 1, where it is not computed
  at::Tensor kd;    // T^2 KL(softmax(teacher / T) || softmax(student / T))
};

// labels int64, as many as tokens (Batch::kIgnore: no loss). Logits exist for one block of tokens, and in
// fp32 for no more; gradients are computed with the losses of a block, and scaled in the backward. Over a
// split vocabulary the ranks exchange seven numbers a token, and every rank gets the same bits.
Distilled distilled_loss(const HeadInput& student, const HeadInput& teacher, const at::Tensor& labels,
                         const LossOptions& options);

}  // namespace heddle::distill
