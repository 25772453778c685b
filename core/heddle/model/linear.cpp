// The linear layer and its node: dX = dY W, dW = dY^T X, db = the column sums of dY.
#include "heddle/model/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include "heddle/model/autograd_node.h"
#include "heddle/model/parameter.h"

namespace heddle {
namespace model {
namespace {

at::Tensor rows_of(const at::Tensor& x) {
  return x.dim() == 2 ? x : x.reshape({-1, x.size(-1)});
}

struct LinearNode final : LayerNode {
  LinearNode() : LayerNode("LinearBackward") {}
  torch::autograd::SavedVariable x, weight;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor dy = rows_of(gradients[0]);
    Gradients out(3);
    const at::Tensor saved_x = x.unpack();
    if (task_should_compute_output(1)) out[1] = at::mm(dy.t(), rows_of(saved_x));
    if (task_should_compute_output(2)) out[2] = dy.sum(0);
    if (task_should_compute_output(0)) out[0] = at::mm(dy, weight.unpack()).view(saved_x.sizes());
    return out;
  }
  void release_variables() override {
    x.reset_data();
    weight.reset_data();
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor rows = rows_of(x);
    y = bias.defined() ? at::addmm(bias, rows, weight.t()) : at::mm(rows, weight.t());
    if (x.dim() != 2) {
      std::vector<int64_t> shape = x.sizes().vec();
      shape.back() = weight.size(0);
      y = y.view(shape);
    }
  }
  if (torch::autograd::compute_requires_grad(x, weight, bias)) {
    auto node = make_node<LinearNode>(x, weight, bias);
    node->x = torch::autograd::SavedVariable(x, false);
    node->weight = torch::autograd::SavedVariable(weight, false);
    torch::autograd::set_history(y, node);
  }
  return y;
}

}  // namespace model

Linear::Linear(int64_t in, int64_t out, Bias with_bias, const Init& init, const at::TensorOptions& options) {
  weight = model::make_parameter({out, in}, init, options);
  add_slot("weight", weight, init);
  if (with_bias == Bias::none) return;
  const Init zeros{Init::Kind::zeros, 0.0};
  bias = model::make_parameter({out}, zeros, options);
  add_slot("bias", bias, zeros);
}

at::Tensor Linear::forward(at::Tensor x, const Batch&) {
  return model::linear(x, weight, bias);
}

}  // namespace heddle
