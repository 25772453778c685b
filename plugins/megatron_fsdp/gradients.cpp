// Gradient views for autograd, reductions, and placement of the sums.
#include "gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <fnmatch.h>

#include <algorithm>
#include <utility>

namespace heddle::megatron_fsdp {
namespace {

bool wide(const Options& options, const std::string& name) {
  return std::any_of(options.wide_patterns.begin(), options.wide_patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, name); });
}

// Copies unless both are the same memory. Tensors on meta have no addresses to compare.
void copy_to(const at::Tensor& to, const at::Tensor& from) {
  if (!to.is_alias_of(from) || to.storage_offset() != from.storage_offset()) to.copy_(from);
}

}  // namespace

at::ScalarType gradient_dtype(at::ScalarType parameters, const Options& options) {
  if (options.main_gradients) return *options.main_gradients;
  return options.wide_gradients ? c10::promoteTypes(parameters, at::kFloat) : parameters;
}

bool matches(const std::string& pattern, const std::string& name) {
  if (pattern == "all") return true;
  return fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

Gradients::Gradients(Bucket& bucket, const Options& options, std::shared_ptr<Shared> shared, at::Tensor home)
    : bucket_(&bucket), shared_(std::move(shared)), whole_(std::move(home)), cast_(options.cast_gradients) {
  at::NoGradGuard no_gradients;
  const auto like = bucket.main().options().dtype(gradient_dtype(bucket.dtype(), options));
  if (!whole_.defined())
    whole_ =
        split() ? at::empty({bucket.elements()}, like) : empty_for(bucket.ranks(), bucket.elements(), like);
  for (Member& member : bucket.members()) {
    Entry entry{&member, {}, {}, 0, false, {}};
    entry.piece =
        whole_.narrow(0, member.range.begin, member.range.size()).view(member.sizes).variable_data();
    entry.adds = entry.piece;
    if (dtype() != at::kFloat && wide(options, member.name))
      entry.adds = at::zeros(member.sizes, like.dtype(at::kFloat));
    entries_.push_back(std::move(entry));
  }
  if (split()) {
    sum_ = at::empty({bucket.part().size()}, like);
    storage_ = sharding::TransientStorage(whole_);
    storage_.release();
  }
  const at::Tensor& home_of_finals = split() ? sum_ : whole_;
  const int64_t first = split() ? bucket.part().begin : 0;
  held_ = home_of_finals.narrow(0, bucket.held().begin - first, bucket.held().size());
  for (Entry& entry : entries_)
    for (size_t i = 0; i < entry.member->shards; ++i) {
      const at::Tensor& shard = bucket.shards()[entry.member->first_shard + i].tensor;
      const int64_t at = shard.numel() == 0 ? 0 : shard.storage_offset() - bucket.main().storage_offset();
      entry.final.push_back(held_.narrow(0, at, shard.numel()).view(shard.sizes()).variable_data());
    }
}

void Gradients::begin_step() {
  summed_ = false;
  for (Entry& entry : entries_) entry.had = false;
  detach();
  if (split()) return;
  open_ = false;
  open();
}

// Clears the buffer, once per step or once per backward.
void Gradients::open() {
  if (std::exchange(open_, true)) return;
  at::NoGradGuard no_gradients;
  if (split()) storage_.acquire();
  whole_.zero_();
  for (Entry& entry : entries_)
    if (!entry.adds.is_same(entry.piece)) entry.adds.zero_();
  attach();
}

void Gradients::attach() {
  for (Entry& entry : entries_) {
    entry.version = entry.adds._version();
    take(entry);
  }
}

void Gradients::take(Entry& entry) {
  const at::Tensor elsewhere = std::exchange(entry.member->leaf.mutable_grad(), entry.adds);
  if (elsewhere.defined() && !elsewhere.is_same(entry.adds)) entry.adds.add_(elsewhere);
}

void Gradients::detach() {
  for (Entry& entry : entries_) entry.member->leaf.mutable_grad().reset();
}

void Gradients::collect() {
  at::NoGradGuard no_gradients;
  open();
  for (Entry& entry : entries_) {
    take(entry);
    entry.had = entry.had || entry.adds._version() != entry.version;
    if (!entry.adds.is_same(entry.piece)) entry.piece.copy_(entry.adds);
  }
}

std::unique_ptr<Work> Gradients::reduce() {
  collect();
  shared_->checks.look_at(*this);
  inner_ = shared_->sums.start(whole_, bucket_->part(), bucket_->split());
  if (!shared_->overlap && inner_.work) std::exchange(inner_.work, {})->wait();
  return std::move(inner_.work);
}

// If gradients are split, the gradients of microbatches accumulate in this rank's part.
void Gradients::reduced() {
  const at::Tensor own = shared_->sums.own(inner_, bucket_->part());
  inner_ = {};
  if (!split()) {
    copy_to(summed(), own);
    return;
  }
  if (std::exchange(summed_, true))
    sum_.add_(own);
  else
    sum_.copy_(own);
  detach();
  open_ = false;
  storage_.release();
}

std::unique_ptr<Work> Gradients::reduce_replicas() {
  if (!shared_->sums.has_replicas()) return nullptr;
  const Range held = bucket_->held();
  const int64_t first = bucket_->part().begin;
  outer_ = shared_->sums.start_outer(summed(), {held.begin - first, held.end - first}, bucket_->split());
  return std::move(outer_.work);
}

void Gradients::replicas_reduced() {
  copy_to(summed(), outer_.wire);
  outer_ = {};
}

void Gradients::place(std::span<const char> used) {
  if (const int divisor = shared_->sums.divisor(); divisor != 1) {
    at::NoGradGuard no_gradients;
    held_.mul_(divisor);
  }
  for (size_t index = 0; index < entries_.size(); ++index) {
    Entry& entry = entries_[index];
    for (size_t i = 0; i < entry.member->shards; ++i) {
      at::Tensor& shard = bucket_->shards()[entry.member->first_shard + i].tensor;
      at::Tensor& gradient = shard.mutable_grad();
      if (used[index] == 0)
        gradient.reset();
      else
        gradient = cast_ ? entry.final[i].to(shard.scalar_type()) : entry.final[i];
    }
  }
}

}  // namespace heddle::megatron_fsdp
