// The largest k of a row by k passes over it, and the weights' derivative where only k scores have one.
#include "lib/nn/cpu/expert_choice_cpu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <bit>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/widest.h"
#include "heddle/base/error.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::model {
namespace {

template <class Number>
using Rank = std::conditional_t<sizeof(Number) == 8, int64_t, int32_t>;

// Whole numbers in the order of the numbers, with NaN first, as at::topk has it.
template <class Number>
inline Rank<Number> rank_of(Number x) {
  constexpr Rank<Number> kMost = std::numeric_limits<Rank<Number>>::max();
  const auto bits = std::bit_cast<Rank<Number>>(x + Number{0});  // -0 becomes 0
  return x != x ? kMost : bits < 0 ? bits ^ kMost : bits;
}

// Marks of experts that can still be chosen. Float: a rank above the expert's place from the end, so that one
// maximum finds the first of equals too.
constexpr int64_t kTaken = std::numeric_limits<int64_t>::min();

HEDDLE_INLINE int64_t take_largest(int64_t* left, int64_t experts, float) {
  int64_t best = left[0];
  for (int64_t e = 1; e < experts; ++e) best = left[e] > best ? left[e] : best;
  const int64_t place = experts - 1 - (best & 0xffffffff);
  left[place] = kTaken;
  return place;
}
HEDDLE_INLINE int64_t take_largest(int64_t* left, int64_t experts, double) {
  int64_t best = 0;
  for (int64_t e = 1; e < experts; ++e) best = left[e] > left[best] ? e : best;
  left[best] = kTaken;
  return best;
}
inline int64_t key_of(float score, int64_t from_end) {
  return static_cast<int64_t>(rank_of(score)) * (int64_t{1} << 32) + from_end;
}
inline int64_t key_of(double score, int64_t) {
  return rank_of(score);
}

template <class Number>
HEDDLE_INLINE void choose_row(const Number* scores, const Number* bias, int64_t experts,
                              const RouterRule& rule, int64_t* left, int64_t* chosen, Number* weights) {
  for (int64_t e = 0; e < experts; ++e)
    left[e] = key_of(bias == nullptr ? scores[e] : scores[e] + bias[e], experts - 1 - e);
  Number sum = 0;
  for (int64_t j = 0; j < rule.top_k; ++j) {
    const int64_t best = take_largest(left, experts, Number{});
    chosen[j] = best;
    weights[j] = scores[best];
    sum += weights[j];
  }
  const bool shares = rule.normalise && rule.top_k > 1;
  const Number divisor = shares ? sum + static_cast<Number>(kTinySum) : Number{1};
  for (int64_t j = 0; j < rule.top_k; ++j)
    weights[j] = weights[j] / divisor * static_cast<Number>(rule.scale);
}

// Choices of the tokens [first, last). left: scratch for one token.
template <class Number>
struct Choices {
  const Number *scores, *bias;
  int64_t experts;
  int64_t* chosen;
  Number* weights;
};
template <class Number>
HEDDLE_INLINE void choose_rows(const Choices<Number>* of, const RouterRule* rule, int64_t first, int64_t last,
                               int64_t* left) {
  for (int64_t i = first; i < last; ++i)
    choose_row(of->scores + i * of->experts, of->bias, of->experts, *rule, left, of->chosen + i * rule->top_k,
               of->weights + i * rule->top_k);
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
    const Choices<Number> all{
        scores.const_data_ptr<Number>(), bias.defined() ? bias.const_data_ptr<Number>() : nullptr, experts,
        out.experts.mutable_data_ptr<int64_t>(), out.weights.mutable_data_ptr<Number>()};
    over_rows(tokens, experts * k, [=, &rule](int64_t begin, int64_t end) {
      std::vector<int64_t> left(experts);
      run_widest<choose_rows<Number>>(&all, &rule, begin, end, left.data());
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
