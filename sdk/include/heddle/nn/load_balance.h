// Auxiliary losses that keep the experts of a mixture equally loaded.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/base/export.h"

namespace heddle::model {

struct BalanceLoss {
  // n_e tokens of T chose expert e (k choices each), of E experts with the mean score p_e over the tokens.
  enum class Form {
    none,
    layer,     // E / (k T) sum_e n_e p_e, of each layer: 1 where all are equal. NeMo AutoModel, Megatron-Core
    sequence,  // the same of each sequence, and their mean. Megatron-Core's seq_aux_loss
    model      // E / T sum_e n_e p_e with n and p as means over the layers: transformers'
               // load_balancing_loss_func
  } form = Form::none;
  double coefficient = 0;
  bool operator==(const BalanceLoss&) const = default;
};

// How often each expert was chosen: chosen [rows * tokens of a row, k] (int64, -1: none) to fp32
// [rows, experts]. Below autograd.
HEDDLE_API at::Tensor count_choices(const at::Tensor& chosen, int64_t rows, int64_t experts);

// sum over rows, tokens and experts of factors[row, expert] * scores[row * tokens + token, expert], as one
// number with a gradient to the scores. factors [rows, experts] has none.
HEDDLE_API at::Tensor weighted_sum(const at::Tensor& scores, const at::Tensor& factors);

// The mean of logsumexp(logits)^2 over the tokens times `factor` (Zoph et al. 2022), one number.
HEDDLE_API at::Tensor z_loss(const at::Tensor& logits, double factor);

// What the layers of one model have for the form `model`: one microbatch at a time, so the layers are on one
// rank, and no other microbatch begins before the last layer.
class HEDDLE_API LayerBalance {
 public:
  LayerBalance(int64_t layers, double coefficient) : layers_(layers), coefficient_(coefficient) {}
  // Layer 0 begins anew. counts [experts] and the number of tokens (one element) are of all ranks that hold
  // tokens of the microbatch, scores [tokens, experts] of this one. After the last layer this rank's part of
  // the loss; before, undefined. Throws Error{not_built} where a layer is missing.
  at::Tensor add(int64_t layer, const at::Tensor& counts, const at::Tensor& tokens, const at::Tensor& scores);

 private:
  int64_t layers_, next_ = 0;
  double coefficient_;
  at::Tensor counts_;
  std::vector<at::Tensor> sums_;  // of the scores over the tokens, one for each layer
};

}  // namespace heddle::model
