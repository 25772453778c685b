// Launching, scaling, the sum in float32, and the second sum over replicas.
#include "reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <utility>

namespace heddle::megatron_fsdp {

Reducer::Reducer(const Options& options, const Ranks& ranks, std::unique_ptr<Communicator> shards,
                 std::vector<Gradients*> order, int64_t limit, Checks checks)
    : options_(options),
      ranks_(ranks),
      shards_(std::move(shards)),
      order_(std::move(order)),
      ready_(order_.size(), false),
      limit_(limit),
      checks_(std::move(checks)) {
  for (size_t i = 0; i < order_.size(); ++i) {
    order_[i]->turn = i;
    order_[i]->number = static_cast<int64_t>(i);
  }
}

void Reducer::ready(Gradients& gradients) {
  ready_[gradients.turn] = true;
  if (!options_.overlap_reduce) return;
  while (next_ < order_.size() && ready_[next_]) launch(*order_[next_++]);
}

void Reducer::wait_for(const Gradients& gradients) {
  while (gradients.in_flight) settle();
}

void Reducer::flush() {
  while (next_ < order_.size()) launch(*order_[next_++]);
  std::fill(ready_.begin(), ready_.end(), false);
  next_ = 0;
  if (!options_.overlap_reduce)
    while (!flying_.empty()) settle();
}

bool Reducer::averages(at::ScalarType gradients) const {
  if (options_.averaging == Averaging::in_the_collective) return true;
  return options_.averaging == Averaging::before_the_sum && options_.average_wide_in_collective &&
         options_.wire.value_or(gradients) != at::kBFloat16;
}

// In the dtype of the wire; divided here unless the collective does it. The whole buffer is divided in place,
// once: what is launched again and again is fresh each time.
at::Tensor Reducer::to_wire(const at::Tensor& tensor, double factor) const {
  at::Tensor wire = tensor;
  if (options_.wire && *options_.wire != tensor.scalar_type()) {
    wire = at::empty(tensor.sizes(), tensor.options().dtype(*options_.wire));
    if (factor != 1) return at::mul_out(wire, tensor, at::scalar_tensor(factor, at::kDouble));
    wire.copy_(tensor);
  } else if (factor != 1) {
    wire.mul_(factor);
  }
  return wire;
}

void Reducer::launch(Gradients& gradients) {
  at::NoGradGuard no_gradients;
  const size_t most = options_.buffering == Buffering::from_the_allocator ? order_.size() : 2;
  wait_for(gradients);
  while (!flying_.empty() && (in_flight_ + gradients.elements() > limit_ || flying_.size() >= most)) settle();
  gradients.collect();
  checks_.look_at(gradients);
  in_flight_ += gradients.elements();
  gradients.in_flight = true;
  InFlight one{&gradients, {}, {}, last_, nullptr};
  post(one);
  flying_.push_back(std::move(one));
  if (!options_.overlap_reduce) settle();
}

void Reducer::post(InFlight& one) {
  const Gradients& gradients = *one.gradients;
  const bool divides = options_.averaging == Averaging::before_the_sum && !averages(gradients.dtype());
  const double factor = divides ? 1.0 / ranks_.all() : 1.0;
  one.wire = ranks_.shards == 1 && factor == 1 ? gradients.whole() : to_wire(gradients.whole(), factor);
  if (ranks_.shards == 1 || gradients.elements() == 0) return;
  const Reduce reduce = averages(one.wire.scalar_type()) ? Reduce::average : Reduce::sum;
  const Range part = gradients.bucket().part();
  if (!gradients.bucket().split().optimizer) {
    one.work = shards_->all_reduce(one.wire, reduce);
  } else if (options_.sum_in_float32) {
    one.received = at::empty_like(one.wire);
    rows_.assign(static_cast<size_t>(ranks_.shards), part.size());
    one.work = shards_->all_to_all(one.received, one.wire, rows_, rows_);
  } else {
    one.work = shards_->reduce_scatter(one.wire.narrow(0, part.begin, part.size()), one.wire, reduce);
  }
}

// This rank's part. After an all-to-all the ranks' parts lie in rank order, and are added up in it.
at::Tensor Reducer::own_sum(InFlight& one) const {
  const Range part = one.gradients->bucket().part();
  const at::Tensor own = one.wire.narrow(0, part.begin, part.size());
  if (!one.received.defined()) return own;
  at::Tensor sum = at::sum(one.received.view({ranks_.shards, part.size()}), {0}, false, at::kFloat);
  if (averages(one.wire.scalar_type())) sum.div_(ranks_.shards);
  return own.copy_(sum);
}

void Reducer::settle() {
  at::NoGradGuard no_gradients;
  InFlight one = std::move(flying_.front());
  flying_.pop_front();
  if (one.work) one.work->wait();
  in_flight_ -= one.gradients->elements();
  one.gradients->in_flight = false;
  one.gradients->accept(own_sum(one));
  if (one.last && ranks_.replicas > 1) start_outer(*one.gradients);
}

void Reducer::start_outer(Gradients& gradients) {
  Outer outer;
  outer.sum = gradients.summed();
  if (outer.sum.numel() == 0) return;
  outer.wire = to_wire(outer.sum, 1);
  const Reduce reduce = averages(outer.wire.scalar_type()) ? Reduce::average : Reduce::sum;
  const Bucket& bucket = gradients.bucket();
  if (bucket.split().outer) {
    outer.part = outer.wire.narrow(0, bucket.held().begin - bucket.part().begin, bucket.held().size());
    outer.work = ranks_.copies->reduce_scatter(outer.part, outer.wire, reduce);
  } else {
    outer.work = ranks_.copies->all_reduce(outer.wire, reduce);
  }
  outer_.push_back(std::move(outer));
}

void Reducer::finish_outer(Outer& outer) const {
  outer.work->wait();
  if (!outer.wire.is_same(outer.sum)) outer.sum.copy_(outer.wire);
}

void Reducer::finish() {
  at::NoGradGuard no_gradients;
  while (!flying_.empty()) settle();
  for (Outer& outer : outer_) finish_outer(outer);
  outer_.clear();
  last_ = false;
}

}  // namespace heddle::megatron_fsdp
