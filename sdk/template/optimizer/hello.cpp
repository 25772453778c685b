// An optimizer: gradient descent with momentum (Polyak 1964), as torch.optim.SGD computes it.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include "heddle/plugin/optimizer.h"
#include "heddle/sdk.h"

namespace hello_plugin {

struct Config {
  double momentum = 0.9;  // the initialiser is the default
};

// Every number of a shard is updated by itself, so nothing is sent: how parameters are split does not matter.
class Hello : public heddle::IOptimizer {
 public:
  explicit Hello(Config config) : config_(config) {}

  void start(std::span<const heddle::TrainedShard> shards, const heddle::DeviceMesh&) override {
    for (const heddle::TrainedShard& one : shards) trained_.push_back({one, at::zeros_like(one.weight)});
  }

  // The names are those of the parts of checkpoints: momentum_buffer.PARAMETER.
  std::vector<heddle::OptimizerState> state() override {
    std::vector<heddle::OptimizerState> out;
    for (const Trained& one : trained_)
      out.push_back({one.of.shard, {heddle::box_state(*one.of.shard, "momentum_buffer", one.buffer)}});
    return out;
  }

  // The engine has divided the gradients, and does not call this for an update that is skipped.
  void update(const heddle::OptimizerUpdate& by) override {
    const at::NoGradGuard no_gradients;
    for (const Trained& one : trained_) {
      const at::Tensor& gradient = one.of.shard->tensor.grad();
      if (!gradient.defined()) continue;  // the parameter took no part in this step
      const at::Tensor& weight = one.of.weight;
      one.buffer.mul_(config_.momentum).add_(gradient.to(weight.scalar_type()));
      one.buffer.add_(weight, by.weight_decay * one.of.wd_mult);
      weight.sub_(one.buffer, by.lr * one.of.lr_mult);
    }
  }

  bool can_undo() const override { return true; }  // state() is complete, and nothing is sent

 private:
  struct Trained {
    heddle::TrainedShard of;
    at::Tensor buffer;
  };
  Config config_;
  std::vector<Trained> trained_;
};

}  // namespace hello_plugin

HEDDLE_PLUGIN("hello", "0.1.0", "optimizer hello") {
  plugin
      .optimizer<hello_plugin::Hello>(
          "hello", heddle::ConfigSchema<hello_plugin::Config>().field(
                       "momentum", &hello_plugin::Config::momentum, "How much of the last update stays.",
                       heddle::Range<double>{0, 1}))
      .lr = 0.01;  // where the section gives none
}
