// Parameters that are laid out, gathered and reduced together.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/sdk.h"
#include "heddle/sharding/bucket.h"
#include "heddle/sharding/transient_storage.h"
#include "options.h"

namespace heddle::megatron_fsdp {

// Allocates a bucket's memory. The shards' ranks read it in place if they share memory. It cannot be resized.
at::Tensor empty_for(const sharding::Groups& ranks, int64_t elements, const at::TensorOptions& options);

struct Member {  // one parameter
  std::string name;
  std::vector<int64_t> sizes;
  at::Tensor leaf;                     // tensor of the model: a view of the whole bucket
  Range range;                         // in the bucket
  size_t first_shard = 0, shards = 0;  // index range in the bucket's boxes
};

// Layout of the members. `whole` is a piece of a larger buffer, or undefined.
struct BucketPlace {
  std::vector<int64_t> offsets;
  int64_t elements = 0;
  at::Tensor whole;
};

// The whole bucket in the parameters' dtype, and this rank's main part, which the optimizer updates. They
// share memory if the dtypes agree and the whole bucket stays allocated.
struct Shared;  // state shared by all gradients of a stage

class Bucket : public sharding::Bucket {
 public:
  // Points the slots at leaves. Tensors on meta get uninitialized memory. Values of other tensors are copied;
  // an embedder's come from the first rank. `gradients`: a piece of a larger buffer, or undefined.
  Bucket(std::vector<ParameterSlot> slots, std::span<const Placed> placed, BucketPlace place,
         const Options& options, const sharding::Groups& ranks, std::shared_ptr<Shared> shared,
         at::Tensor gradients);

  std::vector<Member>& members() { return members_; }
  std::vector<Shard>& shards() { return shards_; }
  const Split& split() const { return split_; }
  const sharding::Groups& ranks() const { return ranks_; }
  int64_t elements() const override { return elements_; }
  Range part() const { return part_; }  // of this rank in the shard group
  Range held() const { return held_; }  // held by this rank's optimizer
  bool trainable() const { return trainable_; }
  at::ScalarType dtype() const { return whole_.scalar_type(); }
  const at::Tensor& whole() const { return whole_; }
  sharding::TransientStorage& storage() { return storage_; }
  const at::Tensor& main() const { return main_; }

  std::vector<sharding::Parameter> parameters() const override;
  bool transient() const override { return split_.parameters; }
  std::unique_ptr<Work> gather() override;
  void free() override { storage_.release(); }
  bool changed() override;

 private:
  void measure(const ParameterSlot& slot, std::span<const Placed> placed, const sharding::Groups& ranks);
  void fill(std::vector<ParameterSlot>& slots, const sharding::Groups& ranks);
  void make_main(std::optional<at::ScalarType> dtype, bool filled, const sharding::Groups& ranks);
  void add_shards(const Member& member, const Shard& whole);
  void gather_inner_part();

  sharding::Groups ranks_;
  Split split_;
  int64_t elements_ = 0;
  Range part_, held_;
  bool trainable_ = false, stale_ = true;
  std::vector<Member> members_;
  std::vector<Shard> shards_;
  at::Tensor whole_, main_;
  at::Tensor inner_;                    // if replicas split it too: this rank's part in the shard group
  sharding::TransientStorage storage_;  // storage of the whole bucket, if parameters are split
};

// Returns the compute dtype: the dtype that the model pinned, or the parameter's own dtype.
at::ScalarType dtype_of(const ParameterSlot& slot);

// Returns the dtype of main parameters, which is never narrower than the parameters' dtype.
at::ScalarType main_dtype_of(at::ScalarType parameters, std::optional<at::ScalarType> asked);

}  // namespace heddle::megatron_fsdp
