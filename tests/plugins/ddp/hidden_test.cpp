// Units with a nested backward, which ddp's count of expected gradients does not include.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

// x * w.sum() with a weight outside the graph, whose gradient comes in a nested backward.
struct Hidden : public torch::autograd::Function<Hidden> {
  static at::Tensor forward(torch::autograd::AutogradContext* saved, const at::Tensor& x,
                            const std::shared_ptr<at::Tensor>& weight) {
    saved->save_for_backward({x});
    saved->saved_data["weight"] = *weight;
    return x * weight->sum().tanh();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 torch::autograd::variable_list gradients) {
    at::AutoGradMode with_gradients(true);
    const at::Tensor x = saved->get_saved_variables()[0].detach().requires_grad_(true);
    const at::Tensor y = x * saved->saved_data["weight"].toTensor().sum().tanh();
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), at::Tensor()};
  }
};

// Runs one step in which the layer uses its weight `uses` times.
Training hiding(const std::string& strategy, const std::string& section, int uses) {
  Training run = toy(strategy, strategy == "ddp" ? std::vector<Axis>{{"dp", 2}} : std::vector<Axis>{});
  run.section = section;
  run.microbatches = strategy == "ddp" ? 1 : 2;
  run.make_units = [uses](int) {
    Toy shape{.layers = 1};
    Units units = toy_units(shape);
    std::vector<ToyUnit::Parameter> own;
    own.push_back(
        {"hidden", at::empty({3}, at::device(at::kMeta)).set_requires_grad(true), {Init::Kind::ones}});
    units[1] = std::make_unique<ToyUnit>(
        "layer0", std::move(own), [uses](ToyUnit& unit, Tensors inputs, const Batch&) -> Tensors {
          at::Tensor x = inputs[0];
          for (int use = 0; use < uses; ++use)
            x = Hidden::apply(x, std::make_shared<at::Tensor>(unit.own[0].tensor));
          return {x};
        });
    return units;
  };
  return run;
}

std::string error_of_ddp(const std::string& section, int uses) {
  return error_of([&] { train(hiding("ddp", section, uses)); });
}

TEST(DdpHidden, SumsAGradientOfANestedBackwardOnce) {
  for (const char* section : {"{}", "{static_graph: true}"})
    expect_close(train(hiding("ddp", section, 1)), train(hiding("single", "{}", 1)));
}

TEST(DdpHidden, RefusesSeveralGradientsInOneBackwardWithAHint) {
  EXPECT_EQ(error_of_ddp("{bucket_cap_mb: 0}", 2),
            "error[input] ddp: the parameter 'hidden' got a gradient twice in one backward, because a unit "
            "runs a nested backward\n  hint: set static_graph: true, which counts the gradients of each "
            "parameter in the first step");
}

TEST(DdpHidden, KeepsTheStaticGraphOfTheFirstStep) {
  Training run = hiding("ddp", "{static_graph: true}", 2), single = hiding("single", "{}", 2);
  run.steps = single.steps = 3;
  expect_close(train(run), train(single));
}

TEST(DdpHidden, RefusesAGradientOutsideTheGraphWithFindUnusedParameters) {
  EXPECT_EQ(error_of_ddp("{find_unused_parameters: true}", 1),
            "error[input] ddp: the parameter 'hidden' got a gradient although it is not in the autograd "
            "graph of the outputs\n  hint: set find_unused_parameters: false");
}

}  // namespace
}  // namespace heddle::tests
