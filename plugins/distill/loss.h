// Cross entropy and divergence from a teacher, computed in blocks of tokens (Hinton et al. 2015).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/nn/token_loss.h"

namespace heddle::distill {

// Input of the loss: hidden [tokens, width] and the head's weight [vocabulary, width]. If the head computes
// more than their product: logits [tokens, vocabulary]. For a split vocabulary, the rank's rows or columns.
struct HeadInput {
  at::Tensor hidden, weight, logits;
  double soft_cap = 0;  // soft cap of the logits, as in TokenLoss
  int64_t columns() const { return logits.defined() ? logits.size(1) : weight.size(0); }
};

struct LossOptions {
  double ratio = 0.5, temperature = 1;
  int64_t chunk = 0;                            // tokens per block; 0: as many as fit
  const model::VocabularyPart* part = nullptr;  // null: the vocabulary is not split
};

// Losses summed over the tokens with a label, fp32 [1] (fp64 for fp64 inputs).
struct Distilled {
  at::Tensor loss;  // (1 - ratio) ce + ratio kd, with a gradient for the student's tensors
  at::Tensor ce;    // cross entropy of the labels; 0 for ratio 1, which skips it
  at::Tensor kd;    // T^2 KL(softmax(teacher / T) || softmax(student / T))
};

// Computes the loss block by block, so that the logits of only one block exist at a time. Gradients are
// computed together with the losses and scaled in the backward. labels: int64, one per token (Batch::kIgnore:
// no loss). Over a split vocabulary the ranks exchange seven numbers per token, and all ranks get the same
// bits.
Distilled distilled_loss(const HeadInput& student, const HeadInput& teacher, const at::Tensor& labels,
                         const LossOptions& options);

}  // namespace heddle::distill
