// Compares a layer with a plain composition of ATen operators: outputs and every gradient.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace heddle::tests {

using AtenLayer = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

struct Ran {
  at::Tensor y;
  std::vector<at::Tensor> gradients;
};

// Runs the layer on copies of `inputs` and differentiates a weighted sum of the outputs.
inline Ran run_layer(const AtenLayer& layer, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.detach().clone().set_requires_grad(true));
  Ran ran{layer(leaves), {}};
  // Starts at 1, because sin(0) would hide the gradient of a single element.
  const at::Tensor weights = at::arange(1, ran.y.numel() + 1, ran.y.options()).sin().view(ran.y.sizes());
  (ran.y * weights).sum().backward();
  for (const at::Tensor& leaf : leaves)
    ran.gradients.push_back(leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf));
  return ran;
}

inline void expect_close(const at::Tensor& ours, const at::Tensor& theirs, double tolerance,
                         const std::string& what) {
  ASSERT_TRUE(ours.defined()) << what;
  ASSERT_EQ(ours.sizes(), theirs.sizes()) << what;
  ASSERT_EQ(ours.scalar_type(), theirs.scalar_type()) << what;
  const double scale = std::max(1e-3, theirs.abs().max().item<double>());
  EXPECT_LE((ours - theirs).abs().max().item<double>(), tolerance * scale) << what;
}

inline void expect_same(const AtenLayer& ours, const AtenLayer& theirs, const std::vector<at::Tensor>& inputs,
                        double tolerance) {
  const Ran a = run_layer(ours, inputs), b = run_layer(theirs, inputs);
  expect_close(a.y, b.y, tolerance, "output");
  for (size_t i = 0; i < inputs.size(); ++i)
    expect_close(a.gradients[i], b.gradients[i], tolerance, "gradient of input " + std::to_string(i));
}

// Tolerance for the rounding of `dtype`.
inline double tolerance_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-12 : dtype == at::kFloat ? 3e-6 : 3e-2;
}

}  // namespace heddle::tests
