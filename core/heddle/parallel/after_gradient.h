// A hook for strategies: called once a backward, after a leaf has its gradient.
#pragma once

#include <torch/csrc/autograd/function_hook.h>

#include <functional>
#include <utility>

namespace heddle {

// Added to a leaf's accumulator with add_post_hook. Keep the accumulator alive: autograd holds it only
// weakly.
class AfterGradient : public torch::autograd::FunctionPostHook {
 public:
  explicit AfterGradient(std::function<void()> call) : call_(std::move(call)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    call_();
    return outputs;
  }

 private:
  std::function<void()> call_;
};

}  // namespace heddle
