// Bad at run time: owns one tensor per parameter slot, so a tied parameter is owned twice.
#include <ATen/ops/empty.h>

#include <utility>

#include "bad_plugins/plain.h"

namespace {

class OwnsTwice : public heddle::ParallelStage {
 public:
  OwnsTwice(heddle::Units units, heddle::Communicator& ranks, std::span<const heddle::Placed> placed)
      : units_(std::move(units)), ranks_(ranks) {
    for (const auto& unit : units_)
      for (heddle::ParameterSlot& slot : unit->parameters()) {
        owned_.push_back(heddle::whole_shard(slot, placed));
        slot.point(at::empty(slot.tensor->sizes(), slot.tensor->options().device(at::kCPU)));
        owned_.back().tensor = *slot.tensor;
      }
  }
  heddle::Tensors forward(heddle::Tensors inputs, const heddle::Batch& batch) override {
    for (const auto& unit : units_) inputs = unit->forward(std::move(inputs), batch);
    return inputs;
  }
  void finish_gradients() override {
    for (const heddle::Shard& shard : owned_) ranks_.all_reduce(shard.tensor.grad())->wait();
  }
  std::span<heddle::Shard> owned() override { return owned_; }
  void parameters_changed(heddle::ParametersChange) override {}

 private:
  heddle::Units units_;
  heddle::Communicator& ranks_;
  std::vector<heddle::Shard> owned_;
};

class Strategy : public plain::Strategy {
 public:
  using plain::Strategy::Strategy;
  std::unique_ptr<heddle::ParallelStage> parallelize(heddle::Units units, const heddle::DeviceMesh& mesh,
                                                     std::span<const heddle::Placed> placed) override {
    return std::make_unique<OwnsTwice>(std::move(units), mesh.group("dp"), placed);
  }
};

}  // namespace

HEDDLE_PLUGIN("owns_twice", "0.1.0") {
  plugin.strategy<Strategy>("owns_twice", plain::schema());
}
