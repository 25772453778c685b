// The parameters of one unit that share a dtype: sharded in one flat buffer, gathered and freed together.
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

// The layout of parameters with one reduction. Memory is shared by the whole stage.
struct Place {
  sharding::Groups groups;
  bool split = true;  // false: every rank holds all of it
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  std::shared_ptr<ReduceBuffers> buffers;  // null: one rank
  std::optional<at::ScalarType> compute;   // the dtype of whole parameters; empty: the storage dtype
  std::optional<at::ScalarType> reduce;  // the dtype in which gradients are summed; empty: the compute dtype
  enum class Shards { on_device, in_host_memory, in_pinned_memory } shards = Shards::on_device;

  int ranks() const { return split ? groups.shards : 1; }
  int rank() const { return split ? groups.shard : 0; }
};

struct Parameter {
  Shard shard;
  at::Tensor leaf;  // the tensor of the model, whose gradient autograd fills
  bool trainable = false;
  int64_t row_elements = 0;  // elements of one row of dim 0
  int64_t rows = 0;          // of the whole parameter
  int64_t chunk = 0;         // rows of the first rank, which every rank's part is padded to
  int64_t offset = 0;        // of its chunk in a rank's part, in elements
  int64_t place = 0;         // of the whole parameter in the group's storage, in elements
  int64_t chunk_elements() const { return chunk * row_elements; }
};

// The leaves are views of one storage that is freed and filled again through an alias with a version counter
// of its own (as FSDP2 does), so saved tensors see the new values.
class Group : public sharding::Bucket {
 public:
  // Points the slots at leaves. Tensors on meta get uninitialised storage; of others the first rank's values
  // are copied.
  Group(std::vector<ParameterSlot> slots, std::span<const Placed> placed, const Place& place);

  std::vector<Parameter>& rows() { return parameters_; }
  const std::vector<Parameter>& rows() const { return parameters_; }
  bool same() const { return same_; }           // one rank, dtype and device: the leaves are the shards
  bool pinned() const { return pinned_; }       // its model chose the compute dtype
  int trainable() const { return trainable_; }  // how many
  at::ScalarType storage_dtype() const { return storage_dtype_; }
  at::ScalarType compute_dtype() const { return compute_dtype_; }
  c10::Device device() const { return parameters_.front().leaf.device(); }
  c10::Device home() const { return parameters_.front().shard.tensor.device(); }

  bool sharded() const { return ranks_ > 1; }  // else every rank of its groups holds all of it
  const sharding::Groups& groups() const { return groups_; }

  std::vector<sharding::Parameter> parameters() const override;
  int64_t elements() const override { return whole_.defined() ? whole_.numel() : 0; }
  bool transient() const override { return sharded(); }
  std::unique_ptr<Work> gather() override;  // not sharded: the leaves take the shards' values
  void gathered() override;
  bool gathers_beside() const override { return sharded() && gathers_.empty() && parameters_.size() > 1; }
  void free() override;
  bool changed() override { return !same_; }

 private:
  struct Arrival {  // a staging buffer as this group sees it
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
  bool cast_ = false;  // the part is copied before it is sent: to another dtype or device
  size_t whole_bytes_ = 0;
  std::vector<Arrival> arrivals_;
  const Arrival* arriving_ = nullptr;
  at::Tensor staging_;
  // On a device that gathers several at once, each parameter where it is used; else empty.
  std::vector<mesh::GatherInto> gathers_;
  std::vector<at::Tensor> cast_to_, cast_from_;  // this rank's parts; empty: they are sent as they are
};

}  // namespace heddle::fsdp2
