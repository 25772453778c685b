// An optimizer: stochastic gradient descent with momentum (Polyak 1964), as in torch.optim.SGD.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include "heddle/plugin/optimizer.h"
#include "heddle/sdk.h"

namespace hello_plugin {

struct Config {
  double momentum = 0.9;  // the initializer is the default
};

// Updates each element independently, so nothing is sent, and the sharding of parameters does not matter.
class Hello : public heddle::IOptimizer {
 public:
  explicit Hello(Config config) : config_(config) {}

  void start(std::span<const heddle::TrainedShard> shards, const heddle::DeviceMesh&) override {
    for (const heddle::TrainedShard& one : shards) trained_.push_back({one, at::zeros_like(one.weight)});
  }

  // The names appear in checkpoints: momentum_buffer.PARAMETER.
  std::vector<heddle::OptimizerState> state() override {
    std::vector<heddle::OptimizerState> out;
    for (const Trained& one : trained_)
      out.push_back({one.of.shard, {heddle::box_state(*one.of.shard, "momentum_buffer", one.buffer)}});
    return out;
  }

  // The engine has divided the gradients, and does not call update() if the update is skipped.
  void update(const heddle::OptimizerUpdate& by) override {
    const at::NoGradGuard no_gradients;
    for (const Trained& one : trained_) {
      const at::Tensor& gradient = one.of.shard->tensor.grad();
      if (!gradient.defined()) continue;  // no rank used the parameter in this step
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
      .optimizer<hello_plugin::Hello>("hello", heddle::ConfigSchema<hello_plugin::Config>().field(
                                                   "momentum", &hello_plugin::Config::momentum,
                                                   "Momentum factor.", heddle::Range<double>{0, 1}))
      .lr = 0.01;  // used if the section does not set lr
}
