// Stage of a rank that shards its parameters with other ranks.
#include <utility>

#include "stage.h"

namespace heddle::fsdp2 {
namespace {

sharding::Policy policy_of(const Options& options) {
  sharding::Policy policy;
  policy.forward.units = options.ahead.forward;
  policy.backward.units = options.ahead.backward;
  policy.reduce_each_microbatch = !options.defer_reduction;
  policy.agree_on_used = false;  // the reduce buffers carry a count per parameter
  return policy;
}

class ShardedStage final : public sharding::ShardedStage {
 public:
  ShardedStage(sharding::Model model, const Options& options, const DeviceMesh& mesh,
               const sharding::Groups& groups)
      : sharding::ShardedStage(std::move(model), policy_of(options), mesh, groups),
        precision_(options.precision),
        pinned_(pinned_units(this->model())) {
    if (options.autocast) autocast_.emplace(*options.autocast, model::Autocast::Weights::cast_each_time);
  }

  Tensors forward(Tensors inputs, const Batch& batch) override {
    const model::Autocast::Scope scope(autocast_ ? &*autocast_ : nullptr);
    return sharding::ShardedStage::forward(std::move(inputs), batch);
  }
  UnitPrecision unit_precision(size_t unit) const override {
    return pinned_[unit] ? UnitPrecision() : of_host(precision_);
  }
  std::optional<at::ScalarType> autocast() const override {
    return autocast_ ? std::optional(autocast_->dtype()) : std::nullopt;
  }
  void finish_gradients() override {
    sharding::ShardedStage::finish_gradients();
    wait_for_moved_gradients(model());
  }

 private:
  Tensors run(size_t unit, Tensors inputs, const Batch& batch) override {
    return run_cast(*model().turns[unit].unit, std::move(inputs), batch,
                    pinned_[unit] ? Precision() : precision_);
  }

  Precision precision_;
  std::vector<char> pinned_;
  std::optional<model::Autocast> autocast_;  // casts at each use, because whole parameters are freed
};

}  // namespace

std::unique_ptr<ParallelStage> make_sharded_stage(sharding::Model model, const Options& options,
                                                  const DeviceMesh& mesh, const sharding::Groups& groups) {
  return std::make_unique<ShardedStage>(std::move(model), options, mesh, groups);
}

}  // namespace heddle::fsdp2
