// Checks that a sequence rule gives the same result when it runs over chunks of the sequence.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lib/decoder/recurrence/short_convolution.h"
#include "tests/nn/against_aten.h"

namespace heddle::tests {

template <class Heads>
struct RuleShape {
  std::string name;
  int64_t rows = 1, sequence = 1;
  Heads heads = {};
  std::vector<int> documents = {};  // empty: each row is one document
  decoder::TokenRows tokens() const {
    decoder::TokenRows out{rows, sequence, {}};
    if (!documents.empty()) out.documents = at::tensor(documents, at::kInt);
    return out;
  }
};

inline at::Tensor random_leaf(at::IntArrayRef sizes) {
  return at::randn(sizes, at::kDouble).set_requires_grad(true);
}

// Compares in float64, relative to the largest expected absolute value, or to 1 if that is less.
inline void expect_near_double(const at::Tensor& got, const at::Tensor& want, double tolerance,
                               const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  const double scale = std::max(1.0, want.abs().max().item<double>());
  EXPECT_LE((got.to(at::kDouble) - want).abs().max().item<double>(), tolerance * scale) << what;
}

// A sequence rule of seven inputs.
template <class Inputs, class Heads>
struct Rule {
  using Shape = RuleShape<Heads>;
  using Leaves = std::vector<at::Tensor>;
  Leaves (*inputs)(const Shape& shape);  // returns random inputs
  at::Tensor (*ours)(const Inputs& in, const Heads& heads, const decoder::TokenRows& tokens,
                     at::Tensor* state);
  int64_t of_tokens;  // number of leading inputs with one row per token

  static Inputs of(const Leaves& all) { return {all[0], all[1], all[2], all[3], all[4], all[5], all[6]}; }

  void expect_continues(const Shape& shape, const std::vector<int64_t>& counts) const {
    const at::NoGradGuard no_gradients;
    const Leaves all = inputs(shape);
    at::Tensor state;
    std::vector<at::Tensor> parts;
    int64_t begin = 0;
    for (const int64_t count : counts) {
      Leaves part = all;
      for (int64_t i = 0; i < of_tokens; ++i) part[i] = part[i].narrow(0, begin, count);
      parts.push_back(ours(of(part), shape.heads, {1, count, {}}, &state));
      begin += count;
    }
    expect_near_double(at::cat(parts), ours(of(all), shape.heads, shape.tokens(), nullptr), 1e-12, "output");
  }
};

}  // namespace heddle::tests
