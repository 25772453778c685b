// Parts are packed into one buffer an axis, summed, and written back.
#include "lib/train/optimizer/partial_sums.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "heddle/parallel/reduction.h"

namespace heddle::train {

PartialSums::PartialSums(std::span<Shard* const> shards, const DeviceMesh& mesh) {
  for (Shard* shard : shards) {
    if (!shard->tensor.requires_grad()) continue;
    check_axes(*shard, shard->partial, mesh);
    for (const std::string& axis : shard->partial)
      if (mesh.size(axis) > 1)
        sum_of(mesh.group(axis), shard->tensor.scalar_type()).entries.push_back({shard, {}, false});
  }
  for (Sum& sum : sums_) lay_out(sum);
}

PartialSums::Sum& PartialSums::sum_of(Communicator& ranks, at::ScalarType dtype) {
  const auto known = std::find_if(sums_.begin(), sums_.end(),
                                  [&](const Sum& sum) { return sum.ranks == &ranks && sum.dtype == dtype; });
  return known != sums_.end() ? *known : sums_.emplace_back(Sum{&ranks, dtype, {}, {}, {}});
}

void PartialSums::lay_out(Sum& sum) {
  const int64_t count = static_cast<int64_t>(sum.entries.size());
  int64_t elements = 0;
  for (const Entry& entry : sum.entries) elements += entry.shard->tensor.numel();
  const at::Tensor& first = sum.entries.front().shard->tensor;
  sum.buffer = at::empty({elements + count}, first.options().requires_grad(false));
  sum.counts = sum.buffer.narrow(0, elements, count);
  int64_t at = 0;
  for (Entry& entry : sum.entries) {
    const at::Tensor& tensor = entry.shard->tensor;
    entry.part = sum.buffer.narrow(0, at, tensor.numel()).view(tensor.sizes());
    at += tensor.numel();
  }
}

void PartialSums::add() {
  at::NoGradGuard no_gradients;
  for (Sum& sum : sums_) add(sum);
}

// A count is read only where this rank had no gradient itself, so the usual step reads nothing back. On meta
// nobody else had one either.
void PartialSums::add(Sum& sum) {
  sum.counts.fill_(1);
  for (size_t i = 0; i < sum.entries.size(); ++i) {
    Entry& entry = sum.entries[i];
    const at::Tensor& gradient = entry.shard->tensor.grad();
    if ((entry.had = gradient.defined())) {
      entry.part.copy_(gradient);
    } else {
      entry.part.zero_();
      sum.counts.select(0, static_cast<int64_t>(i)).zero_();
    }
  }
  sum.ranks->all_reduce(sum.buffer)->wait();
  for (size_t i = 0; i < sum.entries.size(); ++i) {
    Entry& entry = sum.entries[i];
    if (entry.had)
      entry.shard->tensor.mutable_grad().copy_(entry.part);
    else if (!sum.counts.is_meta() && sum.counts.select(0, static_cast<int64_t>(i)).item<double>() > 0)
      entry.shard->tensor.mutable_grad() = entry.part.clone();
  }
}

}  // namespace heddle::train
