// Parameters of one unit with one dtype, sharded in one flat buffer and gathered and freed together.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "heddle/mesh/call.h"
#include "heddle/sdk.h"
#include "heddle/sharding/bucket.h"
#include "layout.h"
#include "memory.h"
#include "reduce_buffers.h"

namespace heddle::fsdp2 {

// Layout of parameters with one reduction. The stage shares its memory.
struct Place {
  sharding::Groups groups;
  bool split = true;  // false: every rank holds whole parameters
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  std::shared_ptr<ReduceBuffers> buffers;  // null: one rank
  std::optional<at::ScalarType> compute;   // dtype of whole parameters; empty: the storage dtype
  std::optional<at::ScalarType> reduce;    // dtype of gradient reduction; empty: the compute dtype
  enum class Shards { on_device, in_host_memory, in_pinned_memory } shards = Shards::on_device;

  int ranks() const { return split ? groups.shards : 1; }
  int rank() const { return split ? groups.shard : 0; }
};

struct Parameter {
  Shard shard;
  at::Tensor leaf;  // tensor of the model, whose gradient autograd sets
  bool trainable = false;
  int64_t row_elements = 0;  // elements per row of dim 0
  int64_t rows = 0;          // rows of the whole parameter
  int64_t chunk = 0;         // rows of the first rank; every rank's part is padded to them
  int64_t offset = 0;        // of the chunk in a rank's part, in elements
  int64_t place = 0;         // of the whole parameter in the group's storage, in elements
  int64_t chunk_elements() const { return chunk * row_elements; }
};

// The leaves are views of one storage, which is freed and refilled through an alias with its own version
// counter (as in FSDP2). Saved tensors therefore see the new values.
class Group : public sharding::Bucket {
 public:
  // Points the slots at leaves. Tensors on meta get uninitialized storage. Values of other tensors come from
  // the first rank.
  Group(std::vector<ParameterSlot> slots, std::span<const Placed> placed, const Place& place);

  std::vector<Parameter>& rows() { return parameters_; }
  const std::vector<Parameter>& rows() const { return parameters_; }
  bool same() const { return same_; }           // one rank, dtype and device: the leaves are the shards
  bool pinned() const { return pinned_; }       // the model chose the compute dtype
  int trainable() const { return trainable_; }  // number of trainable parameters
  at::ScalarType storage_dtype() const { return storage_dtype_; }
  at::ScalarType compute_dtype() const { return compute_dtype_; }
  c10::Device device() const { return parameters_.front().leaf.device(); }
  c10::Device home() const { return parameters_.front().shard.tensor.device(); }

  bool sharded() const { return ranks_ > 1; }  // false: every rank of its groups holds whole parameters
  const sharding::Groups& groups() const { return groups_; }

  std::vector<sharding::Parameter> parameters() const override;
  int64_t elements() const override { return whole_.defined() ? whole_.numel() : 0; }
  bool transient() const override { return sharded(); }
  std::unique_ptr<Work> gather() override;  // if not sharded, copies the shards' values to the leaves
  void gathered() override;
  bool gathers_beside() const override { return sharded() && gathers_.empty() && parameters_.size() > 1; }
  void free() override;
  bool changed() override { return !same_; }

 private:
  struct Arrival {  // this group's view of a staging buffer
    const void* storage;
    at::Tensor all, mine;
  };
  void add(ParameterSlot& slot, std::span<const Placed> placed, const Place& place, Line& line);
  void keep_whole(std::vector<ParameterSlot>& slots, const Place& place);
  void lay_out(std::vector<ParameterSlot>& slots, const Place& place, int64_t part);
  at::Tensor leaf_of(const Parameter& parameter, at::IntArrayRef sizes) const;
  void lay_gathers();
  const Arrival& arrival_in(const at::Tensor& buffer);
  void copy_out();

  std::vector<Parameter> parameters_;
  at::ScalarType storage_dtype_, compute_dtype_;
  bool pinned_ = false, same_ = false;
  int trainable_ = 0, ranks_ = 1, rank_ = 0;

  std::shared_ptr<Memory> memory_;
  sharding::Groups groups_;
  at::Tensor flat_;    // this rank's part: the chunks of all parameters, padded
  at::Tensor whole_;   // alias of the leaves' storage, in the compute dtype
  bool cast_ = false;  // the part is copied to another dtype or device before it is sent
  size_t whole_bytes_ = 0;
  std::vector<Arrival> arrivals_;
  const Arrival* arriving_ = nullptr;
  at::Tensor staging_;
  // Gathers of single parameters, if the device gathers several tensors in one call. Else empty.
  std::vector<mesh::GatherInto> gathers_;
  std::vector<at::Tensor> cast_to_, cast_from_;  // this rank's parts; empty: no cast before sending
};

}  // namespace heddle::fsdp2
