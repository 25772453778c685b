// A router's choice of experts on the CPU, token by token.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/nn/router.h"

namespace heddle::model {

constexpr double kTinySum = 1e-20;  // added to the sum that divides the weights: both peers and transformers

// Whether the kernels below take it: scores of a softmax or a sigmoid, fp32 or fp64, without groups,
// and no more choices than experts.
bool has_choice_kernel(const at::Tensor& scores, const RouterRule& rule);

// scores [tokens, experts] contiguous, bias [experts] of their dtype or undefined. Fills out.experts and
// out.weights. A row's experts are distinct: NaN comes before every number, and of equal scores the first.
void choose_cpu(const at::Tensor& scores, const at::Tensor& bias, const RouterRule& rule, Scored& out);

// The gradient of the logits [tokens, experts] from that of the weights [tokens, k]; chosen int64
// [tokens, k].
at::Tensor choice_backward_cpu(const at::Tensor& d_weights, const at::Tensor& scores,
                               const at::Tensor& chosen, const RouterRule& rule);

// How often each expert is in chosen [rows, ...] int64 (-1: none), added to counts fp32 [rows, experts].
// Throws Error{internal} where there is no such expert.
void count_choices_cpu(const at::Tensor& chosen, const at::Tensor& counts);

}  // namespace heddle::model
