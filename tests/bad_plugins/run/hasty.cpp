// Bad at run time: reduces a gradient on each hook call, as if the hook ran once in the last backward.
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "bad_plugins/plain.h"
#include "core/parallel/single.h"
#include "heddle/parallel/after_gradient.h"

namespace {

class HastyStage : public heddle::ParallelStage {
 public:
  HastyStage(std::unique_ptr<heddle::ParallelStage> inner, heddle::Communicator& ranks)
      : inner_(std::move(inner)) {
    for (heddle::Shard& shard : inner_->owned()) {
      if (!shard.tensor.requires_grad()) continue;
      accumulators_.push_back(torch::autograd::impl::grad_accumulator(shard.tensor));
      accumulators_.back()->add_post_hook(std::make_unique<heddle::AfterGradient>([this, &shard, &ranks] {
        if (last_) ranks.all_reduce(shard.tensor.grad())->wait();
      }));
    }
  }
  heddle::Tensors forward(heddle::Tensors inputs, const heddle::Batch& batch) override {
    return inner_->forward(std::move(inputs), batch);
  }
  void expect_last_backward() override { last_ = true; }
  void reduce_gradients() override {}
  void finish_gradients() override { last_ = false; }
  std::span<heddle::Shard> owned() override { return inner_->owned(); }
  void parameters_changed(heddle::ParametersChange) override {}

 private:
  std::unique_ptr<heddle::ParallelStage> inner_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  bool last_ = false;
};

class Hasty : public plain::Strategy {
 public:
  using plain::Strategy::Strategy;
  std::unique_ptr<heddle::ParallelStage> parallelize(heddle::Units units, const heddle::DeviceMesh& mesh,
                                                     std::span<const heddle::Placed> placed) override {
    return std::make_unique<HastyStage>(
        heddle::parallel::make_single()->parallelize(std::move(units), mesh, placed), mesh.group("dp"));
  }
};

}  // namespace

HEDDLE_PLUGIN("hasty", "0.1.0") {
  plugin.strategy<Hasty>("hasty", plain::schema());
}
