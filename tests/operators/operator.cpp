// Inputs, results and comparisons of the operator registry.
#include "operators/operator.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

namespace heddle::tests {
namespace {

// Returns output weights that begin with sin(1), because sin(0) would hide the gradient of a single element.
at::Tensor output_weights(const at::Tensor& output) {
  const at::Tensor all = at::arange(1, output.numel() + 1, at::kDouble).sin().view(output.sizes());
  return all.to(output.scalar_type()).to(output.device());
}

void expect_tensor(const at::Tensor& got, const at::Tensor& want, double tolerance, const std::string& what) {
  ASSERT_TRUE(got.defined()) << what;
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  if (want.numel() == 0) return;
  const at::Tensor here = got.detach().to(at::kCPU), there = want.detach().to(at::kCPU);
  if (!there.is_floating_point()) {
    EXPECT_TRUE(at::equal(here, there)) << what;
    return;
  }
  const at::Tensor exact = there.to(at::kDouble);
  const double scale = std::max(1e-2, exact.abs().max().item<double>());
  EXPECT_LE((here.to(at::kDouble) - exact).abs().max().item<double>(), tolerance * scale) << what;
}

void expect_same_bits(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  ASSERT_TRUE(got.defined()) << what;
  EXPECT_TRUE(at::equal(got.detach(), want.detach())) << what;
}

using CompareTensors = std::function<void(const at::Tensor&, const at::Tensor&, const std::string&)>;

void compare_results(const OperatorResult& got, const OperatorResult& want, const CompareTensors& compare) {
  ASSERT_EQ(got.outputs.size(), want.outputs.size());
  for (size_t i = 0; i < want.outputs.size(); ++i)
    compare(got.outputs[i], want.outputs[i], "output " + std::to_string(i));
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (size_t i = 0; i < want.gradients.size(); ++i)
    compare(got.gradients[i], want.gradients[i], "gradient of input " + std::to_string(i));
}

}  // namespace

const char* name_of(OperatorCheck check) {
  switch (check) {
    case OperatorCheck::formula:
      return "formula";
    case OperatorCheck::gradient:
      return "gradient";
    case OperatorCheck::meta:
      return "meta";
    case OperatorCheck::bfloat16:
      return "bfloat16";
    case OperatorCheck::recomputation:
      return "recomputation";
    case OperatorCheck::subsets:
      return "subsets";
    case OperatorCheck::views:
      return "views";
    case OperatorCheck::simulated:
      return "simulated";
  }
  return "";
}

const std::vector<Operator>& operators() {
  static const std::vector<Operator> all = [] {
    std::vector<Operator> out;
    for (const auto& part : {product_operators, row_operators, attention_operators, expert_operators,
                             recurrence_operators, decoder_operators, layer_operators}) {
      at::manual_seed(23);
      for (Operator& one : part()) out.push_back(std::move(one));
    }
    return out;
  }();
  return all;
}

OperatorTensors draw_inputs(const OperatorCase& of, at::ScalarType dtype, at::Device device) {
  at::manual_seed(7);
  const bool is_narrow = dtype == at::kBFloat16 || dtype == at::kHalf;
  OperatorTensors out;
  for (const OperatorInput& input : of.inputs) {
    const at::ScalarType own = input.is_wide && is_narrow ? at::kFloat : dtype;
    const at::Tensor drawn = at::randn(input.sizes, at::kFloat) * input.scale;
    out.push_back(drawn.to(own).to(device).set_requires_grad(true));
  }
  return out;
}

OperatorTensors move_constants(const OperatorCase& of, at::Device device) {
  OperatorTensors out;
  for (const at::Tensor& constant : of.constants)
    out.push_back(constant.defined() ? constant.to(device) : constant);
  return out;
}

OperatorTensors gradients_of(const OperatorTensors& outputs, const OperatorTensors& inputs) {
  OperatorTensors with_history, weights, wanted;
  for (const at::Tensor& output : outputs)
    if (output.requires_grad()) {
      with_history.push_back(output);
      weights.push_back(output_weights(output));
    }
  for (const at::Tensor& input : inputs)
    if (input.requires_grad()) wanted.push_back(input);
  if (with_history.empty() || wanted.empty()) return {};
  OperatorTensors out =
      torch::autograd::grad(with_history, wanted, weights, std::nullopt, false, /*allow_unused=*/true);
  for (size_t i = 0; i < out.size(); ++i)
    if (!out[i].defined()) out[i] = at::zeros_like(wanted[i]);
  return out;
}

OperatorResult run_operator(const OperatorFunction& function, const OperatorTensors& inputs,
                            const OperatorTensors& constants) {
  OperatorResult out;
  out.outputs = function(inputs, constants);
  out.gradients = gradients_of(out.outputs, inputs);
  return out;
}

void expect_results(const OperatorResult& got, const OperatorResult& want, double tolerance) {
  compare_results(got, want, [&](const at::Tensor& a, const at::Tensor& b, const std::string& what) {
    expect_tensor(a, b, tolerance, what);
  });
}

void expect_bits(const OperatorResult& got, const OperatorResult& want) {
  compare_results(got, want, expect_same_bits);
}

}  // namespace heddle::tests
