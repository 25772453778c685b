// The gradients of one bucket: autograd adds into a flat buffer, sums are placed in this rank's part of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bucket.h"
#include "checks.h"
#include "sums.h"

namespace heddle::megatron_fsdp {

struct Shared {
  Sums sums;
  Checks checks;
  bool overlap;  // reductions overlap the backward
};

// Leaves' gradients are views of the whole buffer (Megatron's main_grad), so nothing is copied into it. If
// gradients are split, the whole exists from a unit's backward until it is reduced, and sums of microbatches
// accumulate in this rank's part; else the whole stays, and is reduced once a step.
class Gradients : public sharding::Gradients {
 public:
  // `home`: a piece of a larger buffer for the whole, or undefined.
  Gradients(Bucket& bucket, const Options& options, std::shared_ptr<Shared> shared, at::Tensor home);

  Bucket& bucket() const { return *bucket_; }
  bool split() const { return bucket_->split().gradients; }
  at::ScalarType dtype() const { return whole_.scalar_type(); }
  const at::Tensor& whole() const { return whole_; }
  sharding::TransientStorage& storage() { return storage_; }
  int64_t elements() const { return bucket_->elements(); }

  void begin_step() override;
  bool opens() const override { return split(); }
  void open() override;
  std::unique_ptr<Work> reduce() override;
  void reduced() override;
  std::unique_ptr<Work> reduce_replicas() override;
  void replicas_reduced() override;
  bool had(size_t index) const override { return entries_[index].had; }
  // The shards' gradients become the sums, which averages are multiplied back to; of an unused parameter they
  // become undefined.
  void place(std::span<const char> used) override;

  const sharding::Groups* groups() const override { return &bucket_->ranks(); }

  int members() const { return static_cast<int>(entries_.size()); }
  const std::string& name(int index) const { return entries_[index].member->name; }
  // The gradient that autograd adds into, of one member; undefined if there is none now.
  at::Tensor gradient(int index) const { return entries_[index].member->leaf.grad(); }

  int64_t number = 0;  // of the bucket, in messages

 private:
  struct Entry {
    Member* member;
    at::Tensor adds;   // what autograd adds into
    at::Tensor piece;  // of the whole; another tensor if autograd accumulates in float32
    uint32_t version = 0;
    bool had = false;               // in this step
    std::vector<at::Tensor> final;  // of each shard
  };
  void attach();
  void detach();
  // Adds a gradient that came before the buffer existed, or that autograd left elsewhere.
  static void take(Entry& entry);
  // Everything that came is in the buffer; records which parameters had a gradient.
  void collect();
  // The part summed over the replicas.
  at::Tensor summed() const {
    return split() ? sum_ : whole_.narrow(0, bucket_->part().begin, bucket_->part().size());
  }

  Bucket* bucket_;
  std::shared_ptr<Shared> shared_;
  Sums::Inner inner_;
  Sums::Outer outer_;
  at::Tensor whole_, sum_;  // sum: this rank's part, where gradients are split
  at::Tensor held_;         // what this rank's optimizer gets
  sharding::TransientStorage storage_;
  bool open_ = false, summed_ = false, cast_ = false;
  std::vector<Entry> entries_;
};

// Of a bucket's gradients, whose parameters have the dtype `parameters`.
at::ScalarType gradient_dtype(at::ScalarType parameters, const Options& options);

// Whether fnmatch finds that the name matches the pattern of *, ?, [seq] and [!seq]; "all" matches every
// name.
bool matches(const std::string& pattern, const std::string& name);

}  // namespace heddle::megatron_fsdp
