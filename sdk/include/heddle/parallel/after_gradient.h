// A hook for strategies, called after a leaf got a gradient.
#pragma once

#include <torch/csrc/autograd/function_hook.h>

#include <functional>
#include <utility>

namespace heddle {

// Added to a leaf's accumulator with add_post_hook. Keep the accumulator alive: autograd holds it only
// weakly. Called once per backward for each leaf with a gradient; in a split backward that may be when the
// queue is drained, and for a recomputed foreign unit in a nested backward.
class AfterGradient : public torch::autograd::FunctionPostHook {
 public:
  explicit AfterGradient(std::function<void()> call) : call_(std::move(call)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& gradients) override {
    if (!gradients.empty() && gradients[0].defined()) call_();
    return outputs;
  }

 private:
  std::function<void()> call_;
};

}  // namespace heddle
