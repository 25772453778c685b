// Parameters that are laid out, gathered and reduced together.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/sdk.h"
#include "options.h"
#include "transient_storage.h"

namespace heddle::megatron_fsdp {

// The ranks that share a stage's parameters. One rank has no communicator.
struct Ranks {
  int shards = 1, shard = 0;       // the group over which parts are split
  int replicas = 1, replica = 0;   // copies of that
  std::string axis, copies_axis;   // of the shards, of the replicas
  Communicator* gather = nullptr;  // shards
  Communicator* copies = nullptr;  // replicas
  c10::Device device = at::kCPU;   // of parameters that come without storage
  int all() const { return shards * replicas; }
};

// Memory of a bucket, which the shards' ranks read in place where they share memory. It cannot be lent out.
at::Tensor empty_for(const Ranks& ranks, int64_t elements, const at::TensorOptions& options);

// Those along a reduction's axes.
Ranks ranks_over(const DeviceMesh& mesh, const Reduction& reduction);

struct Member {  // one parameter
  std::string name;
  std::vector<int64_t> sizes;
  at::Tensor leaf;                     // what the model computes with: a view of the whole bucket
  Range range;                         // in the bucket
  size_t first_shard = 0, shards = 0;  // its boxes among the bucket's
  int users = 0;                       // units that compute with it
};

// Where the members lie. `whole` is a piece of a larger buffer, or undefined.
struct BucketPlace {
  std::vector<int64_t> offsets;
  int64_t elements = 0;
  at::Tensor whole;
};

// The whole bucket in the parameters' dtype, and this rank's main part: what the optimizer updates. They are
// one memory where the dtypes agree and the whole is always there.
class Bucket {
 public:
  // Points the slots at leaves. Tensors on meta get memory without values; others are copied from, an
  // embedder's from the first rank.
  Bucket(std::vector<ParameterSlot> slots, std::span<const Placed> placed, BucketPlace place,
         const Options& options, const Ranks& ranks);

  std::vector<Member>& members() { return members_; }
  std::vector<Shard>& shards() { return shards_; }
  const Split& split() const { return split_; }
  int64_t elements() const { return elements_; }
  Range part() const { return part_; }  // of this rank in the shard group
  Range held() const { return held_; }  // by this rank's optimizer
  bool trainable() const { return trainable_; }
  at::ScalarType dtype() const { return whole_.scalar_type(); }
  const at::Tensor& whole() const { return whole_; }
  TransientStorage& storage() { return storage_; }
  const at::Tensor& main() const { return main_; }

  bool resting() const { return state_ == State::resting; }
  bool in_flight() const { return state_ == State::in_flight; }
  void start(const Ranks& ranks);  // from resting
  void finish();                   // from in flight: whole
  void free();                     // from whole: resting, where parameters are split
  void changed();                  // the main part has new values

  bool kept = false;  // from its first use in a step to the step's end
  int users = 0;      // units

 private:
  enum class State { resting, in_flight, whole };
  void measure(const ParameterSlot& slot, std::span<const Placed> placed, const Ranks& ranks);
  void fill(std::vector<ParameterSlot>& slots, const Ranks& ranks);
  void make_main(std::optional<at::ScalarType> dtype, bool filled, const Ranks& ranks);
  void add_shards(const Member& member, const Shard& whole);
  void gather_inner_part(const Ranks& ranks);

  Split split_;
  int64_t elements_ = 0;
  Range part_, held_;
  bool trainable_ = false, stale_ = true;
  std::vector<Member> members_;
  std::vector<Shard> shards_;
  at::Tensor whole_, main_;
  at::Tensor inner_;          // split over replicas too: this rank's part in the shard group
  TransientStorage storage_;  // the whole, where parameters are split
  State state_ = State::resting;
  std::unique_ptr<Work> work_;
};

// What the model computes with: a parameter's own dtype, or the one it is pinned to.
at::ScalarType dtype_of(const ParameterSlot& slot);

// The dtype of main parameters: never narrower than the parameters.
at::ScalarType main_dtype_of(at::ScalarType parameters, std::optional<at::ScalarType> asked);

}  // namespace heddle::megatron_fsdp
