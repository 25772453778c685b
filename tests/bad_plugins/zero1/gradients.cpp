// Reduce-scatter of gradients into the owned shards.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <stdexcept>

#include "heddle/parallel/after_gradient.h"
#include "stage.h"

namespace zero1 {

using heddle::Shard;

void Stage::reduce() {
  float* used = used_.mutable_data_ptr<float>();
  for (size_t i = 0; i < trained_.size(); ++i) used[i] = gradient_of(trained_[i]).defined() ? 1.0F : 0.0F;
  if (!is(Fault::unused_not_agreed)) group_.all_reduce(used_, heddle::Reduce::max)->wait();
  const size_t count = buckets_.size();
  for (size_t i = 0; i < count; ++i) {
    const bool turned = is(Fault::order_differs) && group_.rank() % 2 == 1;
    reduce(buckets_[turned ? count - 1 - i : i], i == 0);
  }
  for (Shard& shard : owned_)
    if (is(Fault::frozen_trains) && !shard.tensor.grad().defined() && shard.axes.empty())
      shard.tensor.mutable_grad() = at::zeros_like(shard.tensor);
}

at::Tensor Stage::gradient_of(const Parameter& parameter) const {
  const bool takes = is(Fault::last_forgotten) || is(Fault::drain_ignored) || is(Fault::first_hook_counts);
  return takes ? parameter.taken : parameter.leaf.grad();
}

void Stage::reduce(Bucket& bucket, bool first) {
  const at::NoGradGuard no_gradients;
  bucket.gradients.zero_();
  for (size_t i = bucket.first; i < bucket.last; ++i)
    if (const at::Tensor gradient = gradient_of(trained_[i]); gradient.defined())
      bucket.gradients.narrow(0, trained_[i].begin, gradient.numel()).view(gradient.sizes()).copy_(gradient);
  const bool skip =
      (is(Fault::bucket_forgotten) && !first) || (is(Fault::evaluation_counts) && forwards_ > 0);
  if (skip)
    bucket.sum.copy_(bucket.gradients.narrow(0, group_.rank() * bucket.part, bucket.part));
  else
    scatter(bucket);
  for (size_t i = bucket.first; i < bucket.last; ++i) give(trained_[i], bucket, i);
}

void Stage::scatter(Bucket& bucket) {
  if (is(Fault::skips_second_reduce) && group_.rank() == 1 && stepped_) return;
  if (is(Fault::sums_are_rounded)) {
    const at::Tensor sum = bucket.sum.to(at::kBFloat16);
    group_.reduce_scatter(sum, bucket.gradients.to(at::kBFloat16))->wait();
    bucket.sum.copy_(sum);
    return;
  }
  auto work = group_.reduce_scatter(bucket.sum, bucket.gradients,
                                    is(Fault::averages) ? heddle::Reduce::average : heddle::Reduce::sum);
  if (is(Fault::reads_before_wait)) {
    const at::Tensor early = bucket.sum.clone();
    work->wait();
    bucket.sum.copy_(early);
  } else if (!is(Fault::work_dropped)) {
    work->wait();
  }
  if (is(Fault::waits_twice)) work->wait();
  if (is(Fault::mean_of_microbatches)) bucket.sum.div_(std::max<int64_t>(started_, 1));
  if (is(Fault::clips_gradients)) bucket.sum.clamp_(-0.01, 0.01);
}

// Sets the gradients of the parameter's owned shards from this rank's part of the bucket's sum.
void Stage::give(const Parameter& parameter, const Bucket& bucket, size_t index) {
  const bool unused = used_.const_data_ptr<float>()[index] == 0;
  int64_t at = std::max<int64_t>(parameter.begin - group_.rank() * bucket.part, 0);
  for (size_t i = parameter.first_shard; i < parameter.first_shard + parameter.shards; ++i) {
    Shard& shard = owned_[i];
    const int64_t elements = shard.tensor.numel();
    at::Tensor part =
        bucket.sum.narrow(0, std::min(at, bucket.part - elements), elements).view(shard.tensor.sizes());
    at += elements;
    if (!is(Fault::gradient_is_view)) part = part.detach();
    if (is(Fault::divisor_wrong)) part.mul_(2);
    shard.tensor.mutable_grad() = unused && !is(Fault::unused_gets_zero) ? at::Tensor() : part;
  }
}

// --- Helpers of single faults.

void Stage::take_all() {
  for (Parameter& parameter : trained_)
    if (parameter.leaf.grad().defined()) parameter.taken = parameter.leaf.grad().clone();
}

void Stage::watch_leaves() {
  for (Parameter& parameter : trained_) {
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameter.leaf));
    accumulators_.back()->add_post_hook(std::make_unique<heddle::AfterGradient>([this, &parameter] {
      if (last_ && !parameter.taken.defined()) parameter.taken = parameter.leaf.grad().clone();
    }));
  }
}

void Stage::watch_backward(const at::Tensor& output) {
  ++started_;
  output.register_hook([this](const at::Tensor&) {
    if (is(Fault::throws_in_backward)) throw std::runtime_error("no room for a gradient");
    torch::autograd::Engine::get_default_engine().queue_callback([this] {
      if (is(Fault::drain_ignored) && ++backwards_ == started_) take_all();
    });
  });
}

}  // namespace zero1
