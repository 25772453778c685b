// The strategy `single`: whole parameters, one data-parallel rank, nothing between the units.
#include "core/parallel/single.h"

#include <map>
#include <utility>
#include <vector>

#include "heddle/parallel/shard.h"

namespace heddle::parallel {
namespace {

class SingleStage : public ParallelStage {
 public:
  SingleStage(Units units, c10::Device device, std::span<const Placed> placed) : units_(std::move(units)) {
    std::map<std::string, at::Tensor> seen;  // tied slots share one tensor
    for (auto& unit : units_) {
      std::vector<ParameterSlot> slots = unit->parameters();
      std::vector<ParameterSlot*> fresh;
      for (ParameterSlot& slot : slots)
        if (seen.emplace(slot.name, at::Tensor()).second) fresh.push_back(&slot);
      lay_flat(fresh, device);
      for (ParameterSlot& slot : slots) {
        at::Tensor& first = seen[slot.name];
        if (first.defined()) {
          slot.point(first);
          continue;
        }
        Shard shard = whole_shard(slot, placed);
        first = shard.tensor = *slot.tensor;
        owned_.push_back(std::move(shard));
      }
    }
  }

  Tensors forward(Tensors inputs, const Batch& batch) override {
    for (auto& unit : units_) inputs = unit->forward(std::move(inputs), batch);
    return inputs;
  }
  void finish_gradients() override {}
  std::span<Shard> owned() override { return owned_; }
  void parameters_changed(ParametersChange) override {}
  bool can_restart() const override { return true; }
  void restart_step() override {}
  bool can_host_forward() const override { return true; }
  void begin_forward(const Batch&) override {}

 private:
  Units units_;
  std::vector<Shard> owned_;
};

class Single : public IStrategy {
 public:
  Needs needs() const override {
    Needs needs;
    needs.axes = {"pp", "tp"};
    needs.may_use = {"selective_activation_checkpointing", "post_validation"};
    needs.sizes_rule = [](const Sizes& sizes) -> std::string {
      if (sizes.dp == 1) return "";
      return "single trains one data-parallel rank, and this world leaves dp=" + std::to_string(sizes.dp);
    };
    return needs;
  }
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                             std::span<const Placed> placed) override {
    return std::make_unique<SingleStage>(std::move(units), mesh.device(), placed);
  }
};

}  // namespace

std::unique_ptr<IStrategy> make_single() {
  return std::make_unique<Single>();
}

}  // namespace heddle::parallel
