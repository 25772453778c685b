// A strategy that sums the gradients of each unit during the backward, with heddle::BackwardWalk. Parameters
// are whole on every rank.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <utility>

#include "heddle/sdk.h"
#include "heddle/sharding/backward_walk.h"

namespace overlapped {
namespace {

// The trainable parameters that a unit uses first, and a buffer of their gradients followed by one number for
// each: how many ranks have its gradient.
struct Bucket {
  std::vector<size_t> shards;
  int64_t elements = 0;
  at::Tensor flat;
  std::unique_ptr<heddle::Work> sum;
};

class Stage : public heddle::ParallelStage, private heddle::BackwardWalk::Stops {
 public:
  Stage(heddle::Units units, heddle::Communicator& group, c10::Device device,
        std::span<const heddle::Placed> placed)
      : units_(std::move(units)), group_(group), buckets_(units_.size()), walk_(*this, units_.size()) {
    std::map<std::string, std::pair<size_t, int>> uses;  // the shard, and how many units use it
    for (size_t unit = 0; unit < units_.size(); ++unit)
      for (heddle::ParameterSlot& slot : units_[unit]->parameters()) {
        const auto [known, fresh] = uses.try_emplace(slot.name, owned_.size(), 0);
        ++known->second.second;
        if (fresh)
          own(slot, unit, device, placed);
        else if (!slot.tensor->is_same(owned_[known->second.first].tensor))
          slot.point(owned_[known->second.first].tensor);
      }
    for (size_t unit = 0; unit < buckets_.size(); ++unit)
      for (const size_t shard : buckets_[unit].shards)
        walk_.add(owned_[shard].tensor, unit, uses.at(owned_[shard].name).second);
    forget();
  }

  // [walk]
  heddle::Tensors forward(heddle::Tensors inputs, const heddle::Batch& batch) override {
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      inputs = units_[unit]->forward(std::move(inputs), batch);
      walk_.watch(unit, inputs, batch.weight_gradients);
    }
    return inputs;
  }
  void expect_last_backward() override { last_ = true; }

  void approach(size_t /*unit*/) override {}  // prefetch here: called in the same order on every rank
  void enter(size_t /*unit*/) override {}     // wait for the gather here, before the unit's backward
  // Starts reductions in the same order on every rank: from the last bucket to the first.
  void complete(size_t bucket) override {
    if (!last_) return;
    complete_[bucket] = true;
    while (left_ > 0 && complete_[left_ - 1]) start(buckets_[--left_]);
  }
  void ended(heddle::WeightGradients* /*queue*/) override {}  // free gathered parameters here,
  void drained() override {}                                  // or here if weight gradients are deferred

  // Reduces buckets with unused parameters, and parameters of several units.
  void reduce_gradients() override {
    while (left_ > 0) start(buckets_[--left_]);
  }
  void finish_gradients() override {
    reduce_gradients();
    for (Bucket& bucket : buckets_) {
      if (bucket.sum) bucket.sum->wait();
      give(bucket);
    }
    forget();
  }
  // [/walk]

  void parameters_changed(heddle::ParametersChange) override {}
  std::span<heddle::Shard> owned() override { return owned_; }

 private:
  void own(heddle::ParameterSlot& slot, size_t unit, c10::Device device,
           std::span<const heddle::Placed> placed) {
    heddle::Shard& shard = owned_.emplace_back(heddle::whole_shard(slot, placed));
    if (slot.tensor->is_meta())
      slot.point(at::empty(slot.tensor->sizes(), slot.tensor->options().device(device)));
    else
      group_.broadcast(slot.tensor->detach(), 0)->wait();  // rank 0's values
    shard.tensor = *slot.tensor;
    if (!slot.trainable()) return;
    buckets_[unit].shards.push_back(owned_.size() - 1);
    buckets_[unit].elements += shard.tensor.numel();
  }

  // Calls `call` with each shard, its part of the buffer, and its number.
  template <class Call>
  void each(Bucket& bucket, Call&& call) {
    int64_t at = 0, number = bucket.elements;
    for (const size_t i : bucket.shards) {
      at::Tensor& tensor = owned_[i].tensor;
      call(tensor, bucket.flat.narrow(0, at, tensor.numel()).view(tensor.sizes()).detach(),
           bucket.flat.narrow(0, number++, 1));
      at += tensor.numel();
    }
  }

  void start(Bucket& bucket) {
    if (bucket.shards.empty()) return;
    const at::NoGradGuard no_gradients;
    const auto options = owned_.front().tensor.options().requires_grad(false);
    const auto numbers = static_cast<int64_t>(bucket.shards.size());
    bucket.flat = at::zeros({bucket.elements + numbers}, options);
    each(bucket, [](at::Tensor& tensor, at::Tensor part, at::Tensor used) {
      if (!tensor.grad().defined()) return;
      part.copy_(tensor.grad());
      used.fill_(1);
    });
    bucket.sum = group_.all_reduce(bucket.flat);
  }

  void give(Bucket& bucket) {
    each(bucket, [](at::Tensor& tensor, at::Tensor part, const at::Tensor& used) {
      tensor.mutable_grad() = used.item<float>() > 0 ? std::move(part) : at::Tensor();
    });
  }

  void forget() {
    last_ = false;
    left_ = buckets_.size();
    complete_.assign(left_, false);
  }

  heddle::Units units_;
  heddle::Communicator& group_;
  std::vector<heddle::Shard> owned_;
  std::vector<Bucket> buckets_;  // of each unit
  std::vector<bool> complete_;
  size_t left_ = 0;  // buckets not reduced yet
  bool last_ = false;
  heddle::BackwardWalk walk_;
};

struct Config {};

class Strategy : public heddle::IStrategy {
 public:
  explicit Strategy(Config) {}
  heddle::Needs needs() const override {
    heddle::Needs needs;
    needs.axes = {"dp"};
    needs.refuses = {{"pp", "overlapped is an example without pipeline parallelism"},
                     {"tp", "overlapped is an example without tensor parallelism"},
                     {"cp", "overlapped is an example without context parallelism"},
                     {"ep", "overlapped is an example without expert parallelism"}};
    return needs;
  }
  std::unique_ptr<heddle::ParallelStage> parallelize(heddle::Units units, const heddle::DeviceMesh& mesh,
                                                     std::span<const heddle::Placed> placed) override {
    return std::make_unique<Stage>(std::move(units), mesh.group("dp"), mesh.device(), placed);
  }
};

}  // namespace
}  // namespace overlapped

HEDDLE_PLUGIN("overlapped", "0.1.0") {
  plugin.strategy<overlapped::Strategy>("overlapped", heddle::ConfigSchema<overlapped::Config>());
}
