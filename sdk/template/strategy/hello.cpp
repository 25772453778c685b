// The stage of one rank: forward() runs the units, and finish_gradients() sums gradients in buckets after the
// last backward.
#include "hello.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <utility>

#include "heddle/parallel/flat.h"

namespace hello_plugin {
namespace {

using heddle::Communicator;
using heddle::Shard;

// Parameters whose gradients are summed in one all-reduce, and its buffer.
struct Bucket {
  heddle::parallel::FlatBucket range;
  at::Tensor flat;
};

class HelloStage : public heddle::ParallelStage {
 public:
  HelloStage(heddle::Units units, Communicator& group, c10::Device device,
             std::span<const heddle::Placed> placed, int64_t bytes)
      : units_(std::move(units)), group_(group), device_(device) {
    std::map<std::string, at::Tensor> seen;
    for (const auto& unit : units_)
      for (heddle::ParameterSlot& slot : unit->parameters()) own(slot, placed, seen);
    used_ = at::zeros({static_cast<int64_t>(owned_.size())});
    make_buckets(bytes);
  }

  heddle::Tensors forward(heddle::Tensors inputs, const heddle::Batch& batch) override {
    for (const auto& unit : units_) inputs = unit->forward(std::move(inputs), batch);
    return inputs;
  }

  // Sums the gradients over ranks. A parameter that no rank used keeps an undefined gradient, so the
  // optimizer does not change it.
  void finish_gradients() override {
    float* used = used_.mutable_data_ptr<float>();
    for (size_t i = 0; i < owned_.size(); ++i) used[i] = owned_[i].tensor.grad().defined() ? 1.0F : 0.0F;
    auto agreed = group_.all_reduce(used_, heddle::Reduce::max);
    std::vector<std::unique_ptr<heddle::Work>> sums;
    for (Bucket& bucket : buckets_) {
      each(bucket, [](const at::Tensor& parameter, at::Tensor part) {
        const at::Tensor& gradient = parameter.grad();
        gradient.defined() ? part.copy_(gradient) : part.zero_();
      });
      sums.push_back(group_.all_reduce(bucket.flat));
    }
    agreed->wait();
    for (size_t i = 0; i < buckets_.size(); ++i) {
      sums[i]->wait();
      each(buckets_[i], [](const at::Tensor& parameter, at::Tensor part) {
        parameter.mutable_grad() =
            part.detach();  // an optimizer detaches the gradient in place, which autograd forbids for a view
      });
    }
    for (size_t i = 0; i < owned_.size(); ++i)
      if (used[i] == 0) owned_[i].tensor.mutable_grad() = at::Tensor();
  }

  void parameters_changed(heddle::ParametersChange) override {}
  std::span<Shard> owned() override { return owned_; }

 private:
  // Adds a shard. A tied parameter is owned once. A parameter on meta gets storage, and its values from core
  // later. A parameter with values gets those of rank 0.
  void own(heddle::ParameterSlot& slot, std::span<const heddle::Placed> placed,
           std::map<std::string, at::Tensor>& seen) {
    if (const auto tied = seen.find(slot.name); tied != seen.end()) {
      if (!slot.tensor->is_same(tied->second)) slot.point(tied->second);
      return;
    }
    Shard shard = heddle::whole_shard(slot, placed);
    if (slot.tensor->is_meta()) {
      slot.point(at::empty(slot.tensor->sizes(), slot.tensor->options().device(device_)));
    } else {
      group_.broadcast(slot.tensor->detach(), 0)->wait();
    }
    shard.tensor = *slot.tensor;
    seen.emplace(slot.name, shard.tensor);
    owned_.push_back(std::move(shard));
  }

  void make_buckets(int64_t bytes) {
    std::vector<at::Tensor> tensors;
    for (const Shard& shard : owned_) tensors.push_back(shard.tensor);
    for (const auto& range : heddle::parallel::flat_buckets(tensors, bytes))
      buckets_.push_back(
          {range, at::empty({range.elements}, tensors[range.first].options().requires_grad(false))});
  }

  // Calls `call` with each parameter of the bucket and its part of the flat buffer, in the parameter's shape.
  template <class Call>
  void each(const Bucket& bucket, Call&& call) {
    int64_t at = 0;
    for (size_t i = bucket.range.first; i < bucket.range.last; ++i) {
      const int64_t size = owned_[i].tensor.numel();
      call(owned_[i].tensor, bucket.flat.narrow(0, at, size).view(owned_[i].tensor.sizes()));
      at += size;
    }
  }

  heddle::Units units_;
  Communicator& group_;
  c10::Device device_;
  std::vector<Shard> owned_;
  std::vector<Bucket> buckets_;
  at::Tensor used_;  // per parameter, 1 if a rank has a gradient
};

}  // namespace

heddle::Needs Hello::needs() const {
  heddle::Needs needs;
  needs.axes = {"dp"};
  needs.refuses = {{"tp", "hello does not support tensor parallelism"},
                   {"pp", "hello does not support pipeline parallelism"},
                   {"cp", "hello does not support context parallelism"},
                   {"ep", "hello does not support expert parallelism"}};
  return needs;
}

std::unique_ptr<heddle::ParallelStage> Hello::parallelize(heddle::Units units, const heddle::DeviceMesh& mesh,
                                                          std::span<const heddle::Placed> placed) {
  return std::make_unique<HelloStage>(std::move(units), mesh.group("dp"), mesh.device(), placed,
                                      config_.bucket_mb << 20);
}

}  // namespace hello_plugin
