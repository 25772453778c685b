// The parameters of one unit that share a dtype: sharded in one flat buffer, gathered and freed together.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "heddle/sdk.h"
#include "layout.h"
#include "memory.h"

namespace heddle::fsdp2 {

// What all groups of a stage have in common.
struct Place {
  int ranks = 1, rank = 0;                // of the shard group
  std::string axis;                       // its name
  Communicator* group = nullptr;          // the shard group; null: of one rank
  Communicator* copies = nullptr;         // ranks with copies of the shards; null: one
  c10::Device device = at::kCPU;          // of parameters that come without storage
  std::optional<at::ScalarType> compute;  // the dtype of whole parameters; empty: the storage dtype
  std::optional<at::ScalarType> reduce;   // the dtype in which gradients are summed; empty: the compute dtype
  enum class Shards { on_device, in_host_memory, in_pinned_memory } shards = Shards::on_device;
};

struct Parameter {
  Shard shard;
  at::Tensor leaf;  // what the model computes with and autograd fills the gradient of
  bool trainable = false;
  int64_t row_elements = 0;  // elements of one row of dim 0
  int64_t rows = 0;          // of the whole parameter
  int64_t chunk = 0;         // rows of the first rank, which every rank's part is padded to
  int64_t offset = 0;        // of its chunk in a rank's part, in elements
  int64_t place = 0;         // of the whole parameter in the group's storage, in elements
  int64_t chunk_elements() const { return chunk * row_elements; }
};

// States: sharded, in flight, whole. The leaves are views of one storage that is freed and filled again
// through an alias with a version counter of its own (as FSDP2 does), so saved tensors see the new values.
class Group {
 public:
  // Points the slots at leaves. Tensors on meta get storage without values; others are copied from.
  Group(std::vector<ParameterSlot> slots, std::span<const Placed> placed, const Place& place);

  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  bool same() const { return same_; }           // one rank, dtype and device: the leaves are the shards
  bool pinned() const { return pinned_; }       // its model chose the compute dtype
  bool foreign() const { return foreign_; }     // some of its tensors were an embedder's
  int trainable() const { return trainable_; }  // how many
  at::ScalarType storage_dtype() const { return storage_dtype_; }
  at::ScalarType compute_dtype() const { return compute_dtype_; }
  c10::Device device() const { return parameters_.front().leaf.device(); }
  c10::Device home() const { return parameters_.front().shard.tensor.device(); }

  void expect(Memory& memory) const;
  void start(Memory& memory);                        // from sharded: in flight
  void finish(Memory& memory);                       // from in flight: whole
  void free(Memory& memory);                         // from whole: sharded
  bool sharded() const { return ranks_ > 1; }        // else every rank of its shard group holds all of it
  const std::string& axis() const { return axis_; }  // of its shard group
  Communicator* shards() const { return shards_; }   // null: of one rank
  Communicator* copies() const { return copies_; }   // null: one
  void refresh();                                    // not sharded: the leaves take the shards' values

  Stay stay = Stay::not_at_all;
  int users = 0;  // units that compute with some of its parameters

 private:
  enum class State { sharded, in_flight, whole };
  struct Arrival {  // a staging buffer as this group sees it
    const void* storage;
    at::Tensor all, mine;
  };
  void add(ParameterSlot& slot, std::span<const Placed> placed, const Place& place, Line& line);
  void lay_out(std::vector<ParameterSlot>& slots, const Place& place, int64_t part);
  at::Tensor leaf_of(const Parameter& parameter, at::IntArrayRef sizes) const;
  const Arrival& arrival_in(const at::Tensor& buffer);
  void copy_out();

  std::vector<Parameter> parameters_;
  at::ScalarType storage_dtype_, compute_dtype_;
  bool pinned_ = false, same_ = false, foreign_ = false;
  int trainable_ = 0, ranks_ = 1, rank_ = 0;
  std::string axis_;
  Communicator *shards_, *copies_;
  State state_ = State::sharded;

  at::Tensor flat_;    // this rank's part: the chunks of all parameters, padded
  at::Tensor whole_;   // alias of the leaves' storage, in the compute dtype
  bool cast_ = false;  // the part is copied to where it is sent from: to another dtype or device
  size_t whole_bytes_ = 0;
  std::vector<Arrival> arrivals_;
  const Arrival* arriving_ = nullptr;
  at::Tensor staging_;
  std::unique_ptr<Work> work_;
};

}  // namespace heddle::fsdp2
