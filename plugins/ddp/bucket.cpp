// Bucket of gradients: filling, reduction, and assignment of the sums to the leaves.
#include "bucket.h"

#include <ATen/core/grad_mode.h>

#include <map>
#include <utility>

#include "heddle/transport/shared_memory.h"

namespace heddle::ddp {

Bucket::Bucket(std::vector<int> members, std::vector<at::Tensor> leaves, const Communicator& ranks)
    : members_(std::move(members)) {
  at::NoGradGuard no_gradients;
  int64_t elements = 0;
  for (const at::Tensor& leaf : leaves) elements += leaf.numel();
  const int64_t flags = static_cast<int64_t>(leaves.size());
  buffer_ = mesh::shared_empty(ranks, {elements + flags}, leaves.front().options().requires_grad(false));
  flags_ = buffer_.narrow(0, elements, flags);
  int64_t at = 0;
  for (at::Tensor& leaf : leaves) {
    // The view has a version counter of its own, which tells whether autograd added to it.
    at::Tensor view = buffer_.narrow(0, at, leaf.numel()).view(leaf.sizes()).variable_data();
    at += leaf.numel();
    entries_.push_back({std::move(leaf), std::move(view)});
  }
}

void Bucket::begin() {
  for (Entry& entry : entries_) entry.leaf.mutable_grad().reset();
}

void Bucket::begin_here() {
  at::NoGradGuard no_gradients;
  buffer_.zero_();
  for (Entry& entry : entries_) {
    entry.version = entry.view._version();
    entry.leaf.mutable_grad() = entry.view;
  }
}

void Bucket::pack(Entry& entry) {
  at::Tensor& gradient = entry.leaf.mutable_grad();
  if (gradient.defined() && gradient.is_same(entry.view)) {
    entry.had = entry.view._version() != entry.version;
  } else if ((entry.had = gradient.defined())) {
    entry.view.copy_(gradient);
  } else {
    entry.view.zero_();
  }
  gradient = entry.view;
}

void Bucket::launch(Communicator& ranks) {
  at::NoGradGuard no_gradients;
  flags_.fill_(1);
  for (size_t i = 0; i < entries_.size(); ++i) {
    pack(entries_[i]);
    if (!entries_[i].had) flags_.select(0, static_cast<int64_t>(i)).zero_();
  }
  work_ = ranks.all_reduce(buffer_);
}

// Reads a flag only if this rank had no gradient, so a step that uses every parameter never waits.
void Bucket::finish() {
  work_->wait();
  work_.reset();
  for (size_t i = 0; i < entries_.size(); ++i)
    if (!entries_[i].had &&
        (flags_.is_meta() || flags_.select(0, static_cast<int64_t>(i)).item<double>() == 0))
      entries_[i].leaf.mutable_grad().reset();
}

std::vector<std::vector<int>> deal(const std::vector<at::Tensor>& leaves, const std::vector<int64_t>& order,
                                   int64_t first_bytes, int64_t bytes) {
  struct Open {
    std::vector<int> members;
    int64_t bytes = 0;
  };
  std::map<at::ScalarType, Open> open;
  std::vector<std::vector<int>> closed;
  for (const int64_t parameter : order) {
    const at::Tensor& leaf = leaves[parameter];
    Open& bucket = open[leaf.scalar_type()];
    bucket.members.push_back(static_cast<int>(parameter));
    bucket.bytes += static_cast<int64_t>(leaf.nbytes());
    if (bucket.bytes < (closed.empty() ? first_bytes : bytes)) continue;
    closed.push_back(std::move(bucket.members));
    bucket = Open();
  }
  for (auto& [dtype, bucket] : open)
    if (!bucket.members.empty()) closed.push_back(std::move(bucket.members));
  return closed;
}

}  // namespace heddle::ddp
