// The backward of a microbatch on a stage: whole, or its input first and its weights later.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/engine.h>

#include <utility>

#include "core/parallel/checks/name_units.h"
#include "heddle/base/error.h"
#include "lib/train/runner.h"

namespace heddle::train {

// Gradients are of the sum of losses times `scale`, alike for every microbatch, so one tensor serves all.
at::Tensor Runner::root_gradient(const at::Tensor& loss) {
  return at::full_like(loss.detach(), main_scale());
}

double Runner::main_scale() {
  const double scale = (*scale_)();
  return stages_.pipeline().config.gradients == GradientScale::by_microbatches ? scale / cut_.microbatches
                                                                               : scale;
}

// The gradient of an auxiliary loss.
double Runner::side_scale(LossDivisor divisor) {
  if (divisor == LossDivisor::label_tokens) return main_scale();
  if (divisor == LossDivisor::one) return 1;
  if (!*all_microbatches_)
    throw Error(ErrorCode::internal, "train",
                "an auxiliary loss is divided by microbatches, and their number "
                "is not given",
                "give Runner::train the number of all microbatches");
  return 1 / (*all_microbatches_)();
}

Tensors Runner::gradients_of(LocalStage& stage, MicrobatchState& state) {
  if (stage.last) return Tensors(state.roots.size(), root_);
  if (stage.after >= 0) return std::exchange(state.gradients, {});
  await_inputs();
  return wires_->take_backward(std::exchange(state.returning, {}), stage.index);
}

void Runner::walk_back(const std::vector<torch::autograd::Edge>& roots, const Tensors& gradients) {
  try {
    torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
  } catch (...) {
    parallel::blame_backward(stages_, roots);
    throw;
  }
}

void Runner::backward(const Turn& turn, RanAction* ran) {
  LocalStage& stage = locals_[turn.local];
  MicrobatchState& state = stage.microbatches[turn.action.microbatch];
  const bool whole = turn.action.kind == Action::backward;
  if (whole && turn.last && last_call_) stage.stage->expect_last_backward();
  if (!whole) state.weights->defer();
  const Tensors gradients = gradients_of(stage, state);
  note_ready(ran);
  if (!state.roots.empty()) walk_back(std::exchange(state.roots, {}), gradients);
  if (!stage.first) return_gradients(stage, state, turn.action.microbatch);
  if (!whole) return;
  state.batch = Batch();
  --alive_;
}

// The previous stage expects a gradient: a missing one is zero.
void Runner::return_gradients(LocalStage& stage, MicrobatchState& state, int microbatch) {
  Tensors gradients;
  for (at::Tensor& input : state.inputs) {
    if (!input.defined() || !input.requires_grad()) continue;
    at::Tensor gradient = std::exchange(input.mutable_grad(), at::Tensor());
    gradients.push_back(gradient.defined() ? std::move(gradient) : at::zeros_like(input.detach()));
  }
  state.inputs.clear();
  Tensors& there =
      stage.before < 0 ? state.input_gradients : locals_[stage.before].microbatches[microbatch].gradients;
  there = std::move(gradients);
}

void Runner::backward_weight(const Turn& turn) {
  LocalStage& stage = locals_[turn.local];
  MicrobatchState& state = stage.microbatches[turn.action.microbatch];
  if (turn.last && last_call_) stage.stage->expect_last_backward();
  state.weights->drain();
  state.batch = Batch();
  --alive_;
}

}  // namespace heddle::train
