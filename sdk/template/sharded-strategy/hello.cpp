// The stage of one rank: whole parameters in flat buckets, of which it owns and updates one part (ZeRO-1 of
// Rajbhandari et al. 2020).
#include "hello.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>
#include <utility>

#include "heddle/parallel/flat.h"

namespace hello {
namespace {

using heddle::Communicator;
using heddle::Shard;

// A parameter of the model, and where it lies.
struct Parameter {
  at::Tensor leaf;
  Shard whole;                         // what the parallelizers left of it; its tensor is not set
  int64_t begin = 0;                   // in its bucket
  size_t first_shard = 0, shards = 0;  // in owned()
};

// Parameters [first, last): the values of all ranks' parts one after another, the gradients, and the sum of
// this rank's part.
struct Bucket {
  size_t first = 0, last = 0;
  int64_t part = 0;                   // elements of a rank
  at::Tensor values, gradients, sum;  // [ranks * part], [ranks * part], [part]
};

class HelloStage : public heddle::ParallelStage {
 public:
  HelloStage(heddle::Units units, Communicator& group, c10::Device device,
             std::span<const heddle::Placed> placed, int64_t bytes)
      : units_(std::move(units)), group_(group) {
    collect(placed, device);
    std::vector<at::Tensor> leaves;
    for (const Parameter& parameter : trained_) leaves.push_back(parameter.leaf);
    for (const auto& range : heddle::parallel::flat_buckets(leaves, bytes)) add(range, device);
    for (const Parameter& parameter : frozen_) {  // every rank has them whole
      owned_.push_back(parameter.whole);
      owned_.back().tensor = parameter.leaf.detach();
    }
    used_ = at::zeros({static_cast<int64_t>(trained_.size())});
  }

  heddle::Tensors forward(heddle::Tensors inputs, const heddle::Batch& batch) override {
    for (const auto& unit : units_) inputs = unit->forward(std::move(inputs), batch);
    return inputs;
  }

  // The sums over the ranks of this rank's parts. A parameter that no rank used keeps no gradient, so the
  // optimizer leaves it alone.
  void finish_gradients() override {
    float* used = used_.mutable_data_ptr<float>();
    for (size_t i = 0; i < trained_.size(); ++i) used[i] = trained_[i].leaf.grad().defined() ? 1.0F : 0.0F;
    const auto agreed = group_.all_reduce(used_, heddle::Reduce::max);
    std::vector<std::unique_ptr<heddle::Work>> sums;
    for (Bucket& bucket : buckets_) {
      bucket.gradients.zero_();
      for (size_t i = bucket.first; i < bucket.last; ++i) {
        at::Tensor& gradient = trained_[i].leaf.mutable_grad();
        if (gradient.defined()) place(bucket.gradients, trained_[i]).copy_(gradient);
        gradient = at::Tensor();
      }
      sums.push_back(group_.reduce_scatter(bucket.sum, bucket.gradients));
    }
    agreed->wait();
    for (size_t i = 0; i < buckets_.size(); ++i) {
      sums[i]->wait();
      give(buckets_[i]);
    }
  }

  // The other ranks' parts have new values too.
  void parameters_changed() override {
    const at::NoGradGuard no_gradients;
    std::vector<std::unique_ptr<heddle::Work>> gathers;
    for (const Bucket& bucket : buckets_)
      gathers.push_back(group_.all_gather(bucket.values,
                                          bucket.values.narrow(0, group_.rank() * bucket.part, bucket.part)));
    for (const auto& gather : gathers) gather->wait();
  }

  std::vector<heddle::WholeParameter> hold_whole() override {
    std::vector<heddle::WholeParameter> whole;
    for (const auto* parameters : {&trained_, &frozen_})
      for (const Parameter& parameter : *parameters)
        whole.push_back({parameter.whole.name, parameter.leaf.detach()});
    return whole;
  }

  void unshard() override {}  // the whole model is always there
  void reshard() override {}
  void expect_last_backward() override {}
  std::span<Shard> owned() override { return owned_; }

 private:
  // Each parameter once, a tied one too, with storage and the values that it came with.
  void collect(std::span<const heddle::Placed> placed, c10::Device device) {
    std::map<std::string, at::Tensor> seen;
    for (const auto& unit : units_)
      for (heddle::ParameterSlot& slot : unit->parameters()) {
        if (const auto tied = seen.find(slot.name); tied != seen.end()) {
          if (!slot.tensor->is_same(tied->second)) slot.point(tied->second);
          continue;
        }
        Parameter parameter{{}, heddle::whole_shard(slot, placed)};
        const at::Tensor given = slot.tensor->detach();
        parameter.leaf = slot.point(at::empty(given.sizes(), given.options().device(device)));
        if (!given.is_meta()) parameter.leaf.detach().copy_(given);
        seen.emplace(slot.name, parameter.leaf);
        (slot.trainable() ? trained_ : frozen_).push_back(std::move(parameter));
      }
  }

  // The parameters become views of one buffer.
  void add(const heddle::parallel::FlatBucket& range, c10::Device device) {
    const int64_t part = (range.elements + group_.size() - 1) / group_.size();
    const auto options = trained_[range.first].leaf.options().device(device).requires_grad(false);
    const at::Tensor values = at::zeros({part * group_.size()}, options);
    const Bucket bucket{
        range.first, range.last, part, values, at::zeros_like(values), at::zeros({part}, options)};
    int64_t begin = 0;
    for (size_t i = range.first; i < range.last; ++i) {
      Parameter& parameter = trained_[i];
      parameter.begin = begin;
      begin += parameter.leaf.numel();
      const at::Tensor view = place(values, parameter).detach();
      view.copy_(parameter.leaf.detach());
      parameter.leaf.set_data(view);
      own(parameter, bucket);
    }
    buckets_.push_back(bucket);
  }

  // What this rank's part of the bucket has of the parameter: boxes of it, or an empty one.
  void own(Parameter& parameter, const Bucket& bucket) {
    const int64_t mine = group_.rank() * bucket.part, end = parameter.begin + parameter.leaf.numel();
    const int64_t from = std::clamp(mine, parameter.begin, end),
                  to = std::clamp(mine + bucket.part, from, end);
    Shard whole = parameter.whole;
    whole.axes.push_back("dp");
    parameter.first_shard = owned_.size();
    for (Shard& shard : heddle::parallel::shards_of_range(
             whole, parameter.leaf.sizes(), from - parameter.begin, to - parameter.begin,
             bucket.values.narrow(0, from, to - from), /*trainable=*/true))
      owned_.push_back(std::move(shard));
    parameter.shards = owned_.size() - parameter.first_shard;
  }

  // The sum of this rank's part becomes the gradients of its shards, which lie in it one after another.
  void give(const Bucket& bucket) {
    int64_t begin = 0;
    for (size_t i = bucket.first; i < bucket.last; ++i)
      for (size_t at = trained_[i].first_shard; at < trained_[i].first_shard + trained_[i].shards; ++at) {
        const at::Tensor& tensor = owned_[at].tensor;
        const at::Tensor sum = bucket.sum.narrow(0, begin, tensor.numel()).view(tensor.sizes()).detach();
        begin += tensor.numel();
        tensor.mutable_grad() = used_.const_data_ptr<float>()[i] == 0 ? at::Tensor() : sum;
      }
  }

  // The parameter's stretch of a buffer, in its shape.
  static at::Tensor place(const at::Tensor& buffer, const Parameter& parameter) {
    return buffer.narrow(0, parameter.begin, parameter.leaf.numel()).view(parameter.leaf.sizes());
  }

  heddle::Units units_;
  Communicator& group_;
  std::vector<Parameter> trained_, frozen_;
  std::vector<Bucket> buckets_;
  std::vector<Shard> owned_;
  at::Tensor used_;  // per trained parameter: 1 when a rank has a gradient
};

}  // namespace

heddle::Needs Hello::needs() const {
  heddle::Needs needs;
  needs.axes = {"pp", "dp", "tp"};
  needs.axes_when_used = {"pp", "tp"};
  needs.refuses = {{"cp", "hello does not support context parallelism"},
                   {"ep", "hello does not support expert parallelism"}};
  return needs;
}

std::unique_ptr<heddle::ParallelStage> Hello::parallelize(heddle::Units units, const heddle::DeviceMesh& mesh,
                                                          std::span<const heddle::Placed> placed) {
  return std::make_unique<HelloStage>(std::move(units), mesh.group("dp"), mesh.device(), placed,
                                      config_.bucket_mb << 20);
}

}  // namespace hello
