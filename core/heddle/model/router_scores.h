// From a router's logits to the chosen experts and their weights, as one autograd node.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"

namespace heddle::model {

struct RouterRule {
  enum class Score {
    softmax,             // over all experts, then the largest k
    softmax_after_topk,  // the k largest logits, then a softmax over them
    sigmoid,
    sqrt_softplus
  };
  Score score = Score::softmax;
  int64_t top_k = 1;
  int64_t groups = 1, top_groups = 1;  // a token's experts are in the best top_groups groups
  int64_t group_best = 1;              // a group is worth the sum of so many of its largest scores
  bool normalise = false;              // the k weights are divided by their sum
  double scale = 1;                    // of the weights, after that
  bool operator==(const RouterRule&) const = default;
};

struct Scored {
  at::Tensor experts;  // int64 [tokens, k], the best first
  at::Tensor weights;  // [tokens, k]
  at::Tensor scores;   // [tokens, experts]: of all experts, summing to 1 where `normalise` or a softmax does
};

// logits [tokens, experts], fp32 or fp64. bias [experts] or undefined is added to the scores where experts
// are chosen; weights are without it, and no gradient reaches it. Groups that are not chosen are left out by
// -inf. weights and scores have gradients to the logits.
HEDDLE_API Scored score_experts(const at::Tensor& logits, const at::Tensor& bias, const RouterRule& rule);

// For benchmarks: token t takes the experts t k, t k + 1, ... in turn, each with the weight 1 / k (NeMo
// AutoModel's FakeBalancedGate). No gradient.
HEDDLE_API Scored score_in_turn(const at::Tensor& logits, const RouterRule& rule);

}  // namespace heddle::model
