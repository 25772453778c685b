// Experts on a GPU: launches, bytes compared with a dry step, and experts without tokens.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/nn/device_ops.h"
#include "heddle/nn/experts.h"
#include "heddle/ops/compute_log.h"
#include "simulated/trainings.h"

namespace heddle::tests {
namespace {

using simulated::Machine;
using ActivationKind = model::ExpertActivation::Kind;

const at::TensorOptions kNarrowOnGpu = at::TensorOptions(at::kBFloat16).device(at::kCUDA, 0);

at::Tensor random_of(at::IntArrayRef sizes, const at::TensorOptions& options) {
  if (options.device().is_meta()) return at::empty(sizes, options);
  return (at::randn(sizes) * 0.1).to(options.dtype()).to(options.device());
}

struct LayerInputs {
  at::Tensor x, chosen, weights, gate_up, down;
};

LayerInputs layer_inputs(int64_t columns, const at::TensorOptions& options) {
  constexpr int64_t kTokens = 96, kTopK = 2, kExperts = 4, kHidden = 64, kWidth = 128;
  LayerInputs in;
  in.x = random_of({kTokens, kHidden}, options).requires_grad_();
  in.weights = random_of({kTokens, kTopK}, options.dtype(at::kFloat)).requires_grad_();
  in.chosen = at::zeros({kTokens, kTopK}, options.dtype(at::kLong));
  in.gate_up = random_of({kExperts, columns * kWidth, kHidden}, options).requires_grad_();
  in.down = random_of({kExperts, kHidden, kWidth}, options).requires_grad_();
  return in;
}

// Routes all tokens to experts 0 and 2.
LayerInputs layer_on_gpu(int64_t columns) {
  LayerInputs in = layer_inputs(columns, kNarrowOnGpu);
  in.chosen.select(1, 1).fill_(2);
  return in;
}

void run_layer(const LayerInputs& in, const model::ExpertActivation& how) {
  model::experts(in.x, {in.chosen, in.weights}, {in.gate_up, in.down}, how).sum().backward();
}

constexpr ActivationKind kActivationKinds[] = {
    ActivationKind::swiglu, ActivationKind::limited_swiglu, ActivationKind::clamped_swiglu,
    ActivationKind::geglu,  ActivationKind::geglu_tanh,     ActivationKind::relu2,
    ActivationKind::situ};

TEST(SimulatedExperts, ActivateAndCombineInOneLaunchEach) {
  simulated::offer_device_ops();
  for (const ActivationKind kind : kActivationKinds) {
    Machine::get().begin(simulated::Policy::at_once);
    const model::ExpertActivation how{.kind = kind};
    run_layer(layer_on_gpu(how.columns()), how);
    const auto names = Machine::get().launches_by_name();
    EXPECT_EQ(names.at("heddle::expert_activation"), 1);
    EXPECT_EQ(names.at("heddle::expert_activation_backward"), 1);
    EXPECT_EQ(names.at("heddle::combine_rows"), 2);  // outputs and input gradients
    EXPECT_FALSE(names.contains("aten::sigmoid")) << static_cast<int>(kind);
  }
}

// Launches touch the bytes that a dry step predicts, within 10% for sorting the tokens.
TEST(SimulatedExperts, TouchAsManyBytesAsADryStepRecords) {
  simulated::offer_device_ops();
  for (const ActivationKind kind : kActivationKinds) {
    const model::ExpertActivation how{.kind = kind};
    const LayerInputs in = layer_on_gpu(how.columns());
    Machine::get().begin(simulated::Policy::at_once);
    run_layer(in, how);
    const auto touched = static_cast<double>(Machine::get().counts().bytes_touched);
    const LayerInputs dry = layer_inputs(how.columns(), kNarrowOnGpu.device(at::kMeta));
    const model::MetaKernels kernels;
    const ComputeRecorder recorder;
    run_layer(dry, how);
    const OperatorCost cost = recorder.log().total();
    EXPECT_NEAR(touched, cost.read + cost.written, 0.1 * touched) << static_cast<int>(kind);
  }
}

// LibTorch's grouped product is undefined for empty groups on some GPUs.
TEST(SimulatedExperts, HaveZeroGradientsWithoutTokens) {
  simulated::offer_device_ops();
  Machine::get().begin(simulated::Policy::late);
  const LayerInputs in = layer_on_gpu(2);
  run_layer(in, {});
  EXPECT_TRUE(Machine::get().launches_by_name().contains("heddle::grouped_product"));
  for (const at::Tensor& weight : {in.gate_up, in.down}) {
    const at::Tensor gradient = weight.grad().to(at::kCPU);
    for (const int64_t expert : {1, 3})
      EXPECT_EQ(gradient[expert].abs().max().to(at::kFloat).item<float>(), 0) << expert;
    for (const int64_t expert : {0, 2})
      EXPECT_GT(gradient[expert].abs().max().to(at::kFloat).item<float>(), 0) << expert;
  }
  EXPECT_THAT(Machine::get().reports(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace heddle::tests
