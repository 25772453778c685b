// AfterGradient, an autograd hook that calls a function after a leaf has its gradient.
#pragma once

#include <torch/csrc/autograd/function_hook.h>

#include <functional>
#include <utility>

namespace heddle {

// A hook to add to a leaf's gradient accumulator with add_post_hook. Keep the accumulator alive, because
// autograd holds it only weakly. The hook is called once per backward for each leaf with a gradient. In a
// split backward the call may come when the queue is drained, and for a recomputed foreign unit it comes in a
// nested backward.
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
