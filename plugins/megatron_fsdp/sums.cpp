// Scaling of gradients, the sum in float32, and the second sum over replicas.
#include "sums.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sum.h>

namespace heddle::megatron_fsdp {

bool Sums::averages(at::ScalarType gradients) const {
  if (options_.averaging == Averaging::in_the_collective) return true;
  return options_.averaging == Averaging::before_the_sum && options_.average_wide_in_collective &&
         options_.wire.value_or(gradients) != at::kBFloat16;
}

// A collective divides by the size of its own group, which is smaller for experts (Megatron-Core's expert
// scaling factor).
double Sums::factor(at::ScalarType gradients) const {
  if (averages(gradients)) return static_cast<double>(groups_.ranks()) / divisor_;
  return options_.averaging == Averaging::before_the_sum ? 1.0 / divisor_ : 1.0;
}

// Casts to the wire dtype, and divides unless the collective does. The whole buffer is divided in place, once
// per launch, with new gradients each time.
at::Tensor Sums::to_wire(const at::Tensor& tensor, double factor) const {
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

Sums::Inner Sums::start(const at::Tensor& whole, Range part, Split split) const {
  Inner one;
  const double before = factor(whole.scalar_type());
  one.wire = groups_.shards == 1 && before == 1 ? whole : to_wire(whole, before);
  if (groups_.shards == 1 || whole.numel() == 0) return one;
  Communicator& ranks = *groups_.reduce;
  const Reduce reduce = averages(one.wire.scalar_type()) ? Reduce::average : Reduce::sum;
  if (!split.optimizer) {
    one.work = ranks.all_reduce(one.wire, reduce);
  } else if (options_.sum_in_float32) {
    one.received = at::empty_like(one.wire);
    const std::vector<int64_t> rows(static_cast<size_t>(groups_.shards), part.size());
    one.work = ranks.all_to_all(one.received, one.wire, rows, rows);
  } else {
    one.work = ranks.reduce_scatter(one.wire.narrow(0, part.begin, part.size()), one.wire, reduce);
  }
  return one;
}

// After an all-to-all the parts of the ranks are in rank order, and are summed in that order.
at::Tensor Sums::own(Inner& one, Range part) const {
  const at::Tensor own = one.wire.narrow(0, part.begin, part.size());
  if (!one.received.defined()) return own;
  at::Tensor sum = at::sum(one.received.view({groups_.shards, part.size()}), {0}, false, at::kFloat);
  if (averages(one.wire.scalar_type())) sum.div_(groups_.shards);
  return own.copy_(sum);
}

Sums::Outer Sums::start_outer(const at::Tensor& sum, Range held, Split split) const {
  Outer outer;
  if (sum.numel() == 0) return outer;
  outer.wire = to_wire(sum, 1);
  const Reduce reduce = averages(outer.wire.scalar_type()) ? Reduce::average : Reduce::sum;
  if (split.outer) {
    const at::Tensor part = outer.wire.narrow(0, held.begin, held.size());
    outer.work = groups_.across->reduce_scatter(part, outer.wire, reduce);
  } else {
    outer.work = groups_.across->all_reduce(outer.wire, reduce);
  }
  return outer;
}

}  // namespace heddle::megatron_fsdp
