// The largest k of a row by k passes over it, and the weights' derivative where only k scores have one.
#include "lib/nn/cpu/expert_choice_cpu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <bit>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "heddle/base/error.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::model {
namespace {

template <class Number>
using Rank = std::conditional_t<sizeof(Number) == 8, int64_t, int32_t>;

// Below the rank of every number, -inf too.
template <class Number>
constexpr Rank<Number> kTaken = std::numeric_limits<Rank<Number>>::min();

// Whole numbers in the order of the numbers, with NaN first, as at::topk has it.
template <class Number>
Rank<Number> rank_of(Number x) {
  constexpr Rank<Number> kMost = std::numeric_limits<Rank<Number>>::max();
  const auto bits = std::bit_cast<Rank<Number>>(x + Number{0});  // -0 becomes 0
  return x != x ? kMost : bits < 0 ? bits ^ kMost : bits;
}

template <class Number>
void choose_row(const Number* scores, const Number* bias, int64_t experts, const RouterRule& rule,
                Rank<Number>* left, int64_t* chosen, Number* weights) {
  for (int64_t e = 0; e < experts; ++e)
    left[e] = rank_of<Number>(bias == nullptr ? scores[e] : scores[e] + bias[e]);
  Number sum = 0;
  for (int64_t j = 0; j < rule.top_k; ++j) {
    int64_t best = 0;
    for (int64_t e = 1; e < experts; ++e) best = left[e] > left[best] ? e : best;
    left[best] = kTaken<Number>;
    chosen[j] = best;
    weights[j] = scores[best];
    sum += weights[j];
  }
  const bool shares = rule.normalise && rule.top_k > 1;
  const Number divisor = shares ? sum + static_cast<Number>(kTinySum) : Number{1};
  for (int64_t j = 0; j < rule.top_k; ++j)
    weights[j] = weights[j] / divisor * static_cast<Number>(rule.scale);
}

// d is scratch for k numbers.
template <class Number>
void differentiate_row(const Number* d_weights, const Number* scores, const int64_t* chosen, int64_t experts,
                       const RouterRule& rule, Number* d, Number* d_logits) {
  Number sum = static_cast<Number>(kTinySum), along = 0;
  for (int64_t j = 0; j < rule.top_k; ++j) {
    d[j] = d_weights[j] * static_cast<Number>(rule.scale);
    sum += scores[chosen[j]];
    along += d[j] * scores[chosen[j]];
  }
  if (rule.normalise && rule.top_k > 1)
    for (int64_t j = 0; j < rule.top_k; ++j) d[j] = (d[j] - along / sum) / sum;
  if (rule.score == RouterRule::Score::sigmoid) {
    for (int64_t e = 0; e < experts; ++e) d_logits[e] = 0;
    for (int64_t j = 0; j < rule.top_k; ++j)
      d_logits[chosen[j]] += d[j] * scores[chosen[j]] * (1 - scores[chosen[j]]);
    return;
  }
  Number mean = 0;
  for (int64_t j = 0; j < rule.top_k; ++j) mean += d[j] * scores[chosen[j]];
  for (int64_t e = 0; e < experts; ++e) d_logits[e] = -mean * scores[e];
  for (int64_t j = 0; j < rule.top_k; ++j) d_logits[chosen[j]] += d[j] * scores[chosen[j]];
}

template <class Body>
void run_wide(const at::Tensor& scores, const Body& body) {
  if (scores.scalar_type() == at::kDouble)
    body(double{});
  else
    body(float{});
}

}  // namespace

bool has_choice_kernel(const at::Tensor& scores, const RouterRule& rule) {
  const bool grouped = rule.groups > 1 && rule.top_groups < rule.groups;
  return has_kernel(scores) && scores.scalar_type() != at::kBFloat16 && !grouped &&
         rule.top_k <= scores.size(1) &&
         (rule.score == RouterRule::Score::softmax || rule.score == RouterRule::Score::sigmoid);
}

void choose_cpu(const at::Tensor& scores, const at::Tensor& bias, const RouterRule& rule, Scored& out) {
  const int64_t tokens = scores.size(0), experts = scores.size(1), k = rule.top_k;
  out.experts = at::empty({tokens, k}, scores.options().dtype(at::kLong));
  out.weights = at::empty({tokens, k}, scores.options());
  run_wide(scores, [&]<class Number>(Number) {
    const Number* const from = scores.const_data_ptr<Number>();
    const Number* const plus = bias.defined() ? bias.const_data_ptr<Number>() : nullptr;
    int64_t* const chosen = out.experts.mutable_data_ptr<int64_t>();
    Number* const weights = out.weights.mutable_data_ptr<Number>();
    over_rows(tokens, experts * k, [=, &rule](int64_t begin, int64_t end) {
      std::vector<Rank<Number>> left(experts);
      for (int64_t i = begin; i < end; ++i)
        choose_row(from + i * experts, plus, experts, rule, left.data(), chosen + i * k, weights + i * k);
    });
  });
}

at::Tensor choice_backward_cpu(const at::Tensor& d_weights, const at::Tensor& scores,
                               const at::Tensor& chosen, const RouterRule& rule) {
  const int64_t tokens = scores.size(0), experts = scores.size(1), k = rule.top_k;
  const at::Tensor out = at::empty_like(scores);
  run_wide(scores, [&]<class Number>(Number) {
    const auto *d = d_weights.const_data_ptr<Number>(), *from = scores.const_data_ptr<Number>();
    const int64_t* const places = chosen.const_data_ptr<int64_t>();
    Number* const to = out.mutable_data_ptr<Number>();
    over_rows(tokens, experts, [=, &rule](int64_t begin, int64_t end) {
      std::vector<Number> scratch(k);
      for (int64_t i = begin; i < end; ++i)
        differentiate_row(d + i * k, from + i * experts, places + i * k, experts, rule, scratch.data(),
                          to + i * experts);
    });
  });
  return out;
}

void count_choices_cpu(const at::Tensor& chosen, const at::Tensor& counts) {
  const int64_t rows = counts.size(0), experts = counts.size(1), each = chosen.numel() / rows;
  const int64_t* places = chosen.const_data_ptr<int64_t>();
  float* to = counts.mutable_data_ptr<float>();
  for (int64_t row = 0; row < rows; ++row, places += each, to += experts)
    for (int64_t i = 0; i < each; ++i) {
      if (places[i] >= experts)
        throw Error(ErrorCode::internal, "model",
                    "a token chose expert " + std::to_string(places[i]) + "; experts are 0 to " +
                        std::to_string(experts - 1));
      if (places[i] >= 0) to[places[i]] += 1;
    }
}

}  // namespace heddle::model
