// Gradients of one bucket: autograd adds into a flat buffer, and sums are placed in this rank's part of it.
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

// Gradients of leaves are views of the whole buffer (Megatron's main_grad), so nothing is copied into it. If
// gradients are split, the whole buffer exists from a unit's backward until its reduction, and the sums of
// microbatches accumulate in this rank's part. Otherwise the whole buffer stays allocated and is reduced once
// per step.
class Gradients : public sharding::Gradients {
 public:
  // `home`: a piece of a larger buffer for the whole bucket, or undefined.
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
  // Sets the shards' gradients to the sums. Averages are multiplied by divisor(). The gradient of an unused
  // parameter becomes undefined.
  void place(std::span<const char> used) override;

  const sharding::Groups* groups() const override { return &bucket_->ranks(); }

  int members() const { return static_cast<int>(entries_.size()); }
  const std::string& name(int index) const { return entries_[index].member->name; }
  // Gradient of one member that autograd adds into. Undefined if there is none yet.
  at::Tensor gradient(int index) const { return entries_[index].member->leaf.grad(); }

  int64_t number = 0;  // number of the bucket, for messages

 private:
  struct Entry {
    Member* member;
    at::Tensor adds;   // tensor that autograd adds into
    at::Tensor piece;  // of the whole; a different tensor if autograd accumulates in float32
    uint32_t version = 0;
    bool had = false;               // had a gradient in this step
    std::vector<at::Tensor> final;  // of each shard
  };
  void attach();
  void detach();
  // Adds a gradient that came before the buffer existed, or that autograd stored elsewhere.
  static void take(Entry& entry);
  // Moves all gradients into the buffer, and records which parameters had one.
  void collect();
  // Returns the part summed over the replicas.
  at::Tensor summed() const {
    return split() ? sum_ : whole_.narrow(0, bucket_->part().begin, bucket_->part().size());
  }

  Bucket* bucket_;
  std::shared_ptr<Shared> shared_;
  Sums::Inner inner_;
  Sums::Outer outer_;
  at::Tensor whole_, sum_;  // sum_: this rank's part, if gradients are split
  at::Tensor held_;         // gradients of this rank's optimizer
  sharding::TransientStorage storage_;
  bool open_ = false, summed_ = false, cast_ = false;
  std::vector<Entry> entries_;
};

// Returns the dtype of a bucket's gradients. `parameters`: dtype of its parameters.
at::ScalarType gradient_dtype(at::ScalarType parameters, const Options& options);

// Returns whether the name matches a pattern of fnmatch: *, ?, [seq] and [!seq]. "all" matches every name.
bool matches(const std::string& pattern, const std::string& name);

}  // namespace heddle::megatron_fsdp
