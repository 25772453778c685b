// What tests of rules over sequences share: rows of tokens in documents, random leaves, a comparison.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lib/decoder/recurrence/short_convolution.h"

namespace heddle::tests {

template <class Heads>
struct RuleShape {
  std::string name;
  int64_t rows = 1, sequence = 1;
  Heads heads = {};
  std::vector<int> documents = {};  // empty: each row is one
  decoder::TokenRows tokens() const {
    decoder::TokenRows out{rows, sequence, {}};
    if (!documents.empty()) out.documents = at::tensor(documents, at::kInt);
    return out;
  }
  bool begins(int64_t token) const {
    if (documents.empty()) return token % sequence == 0;
    return std::find(documents.begin(), documents.end(), token) != documents.end();
  }
};
template <class Heads>
std::ostream& operator<<(std::ostream& out, const RuleShape<Heads>& shape) {
  return out << shape.name;
}

inline at::Tensor random_leaf(at::IntArrayRef sizes) {
  return at::randn(sizes, at::kDouble).set_requires_grad(true);
}

// Compared in double: the largest difference, relative to the largest number where that is above 1.
inline void expect_near_double(const at::Tensor& got, const at::Tensor& want, double tolerance,
                               const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  const double scale = std::max(1.0, want.abs().max().item<double>());
  EXPECT_LE((got.to(at::kDouble) - want).abs().max().item<double>(), tolerance * scale) << what;
}

}  // namespace heddle::tests
