// What a sharded strategy provides: the layout of parameters in memory, how they are gathered, and how their
// gradients are summed. The engine decides when.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/mesh/communicator.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/reduction.h"
#include "heddle/parallel/shard.h"

namespace heddle::sharding {

// The ranks that share parameters, from the axes along which their gradients are summed.

// Pointers are null for a group of one rank. The groups live as long as the mesh.
struct Groups {
  Reduction axes;
  int shards = 1, shard = 0;      // ranks that split, and this rank's index among them
  int replicas = 1, replica = 0;  // copies, and this rank's
  Communicator* gather = nullptr;
  // A second group of the ranks of `gather`, for reductions: a rank whose gradients are missing reduces later
  // than others, so reductions need an order of their own.
  std::shared_ptr<Communicator> reduce;
  Communicator* across = nullptr;  // the replicas
  Communicator* all = nullptr;
  c10::Device device = at::kCPU;  // of parameters without storage

  int ranks() const { return shards * replicas; }
};

// Makes the groups for the parameters of one reduction; called in the same order on every rank.
Groups groups_over(const DeviceMesh& mesh, Reduction axes);

// The values of a slot's tensor on the first of the ranks, which may hold others: a copy on `tensor`'s
// device, or `tensor` itself for one rank and on meta. A collective call.
at::Tensor first_values(const at::Tensor& tensor, const Groups& groups);

class Reducer;
class ShardedStage;
class Bucket;

// One parameter of a bucket.
struct Parameter {
  std::string name;
  at::Tensor leaf;            // the tensor of the model, whose gradient autograd fills
  std::vector<Shard> shards;  // the boxes that this rank owns; one of numel 0 if it owns nothing
  bool trainable() const { return leaf.requires_grad(); }
};

// The gradients of one bucket. Every function is called in the same order on every rank, also if this rank
// has no gradient: missing gradients count as zero.
class Gradients {
 public:
  virtual ~Gradients() = default;

  virtual void begin_step() = 0;  // before the first forward of a step: drops the gradients of the last step
  // Before a backward adds gradients to it; only if opens(). Its reduction is finished by then. A leaf may
  // have a gradient already, that of a value passed beside its unit's outputs: it is added, not replaced.
  virtual void open() {}
  virtual bool opens() const { return false; }
  // Gradients of a backward have arrived and wait for those of further microbatches. May be called several
  // times.
  virtual void keep() {}
  // Takes the gradients from the leaves and starts their sum over the ranks that split; null: done.
  virtual std::unique_ptr<Work> reduce() = 0;
  virtual void reduced() = 0;  // the sum of a microbatch or of the step is complete
  // The sum over the replicas, once per step, after the last reduced(); null: none, or done.
  virtual std::unique_ptr<Work> reduce_replicas() { return nullptr; }
  virtual void replicas_reduced() {}
  // This rank had a gradient of trainable parameter i in this step. Read after reduce() if
  // Policy::agree_on_used.
  virtual bool had(size_t i) const { return true; }
  // The ranks over which they are summed; null: those of the stage.
  virtual const Groups* groups() const { return nullptr; }
  // Sets shard.tensor.grad() of every shard. used[i]: some rank had a gradient of trainable parameter i,
  // else the gradient stays undefined. Without Policy::agree_on_used the span is empty, and the bucket knows.
  virtual void place(std::span<const char> used) = 0;

 private:
  friend Reducer;
  friend ShardedStage;
  bool ready_ = false, in_flight_ = false;
  int64_t elements_ = 0;
  size_t turn_ = 0;  // its index in the order of reductions
};

// Parameters that are gathered, freed and reduced together. Freed storage stays attached to the leaves'
// views, so that tensors saved by autograd see the values once it is filled again (TransientStorage).
class Bucket {
 public:
  virtual ~Bucket() = default;

  // The parameters; called when the model is made, not in a step.
  virtual std::vector<Parameter> parameters() const = 0;
  // The cost of a gather of the whole bucket, in elements.
  virtual int64_t elements() const = 0;
  // Whether whole parameters are freed after use. False: they stay, and are gathered only after an update.
  virtual bool transient() const = 0;
  // Allocates storage for the whole parameters and starts to gather them; null: done.
  virtual std::unique_ptr<Work> gather() = 0;
  virtual void gathered() {}  // the gather is complete
  // A gather holds memory beside the whole parameters until gathered(). unshard() then starts it only where
  // the unit's own turn is near.
  virtual bool gathers_beside() const { return false; }
  virtual void free() {}  // of transient buckets: frees the storage
  // The owned shards have new values. False: so have the whole parameters.
  virtual bool changed() { return true; }

  // Null: it is not trainable.
  Gradients* gradients() const { return gradients_.get(); }
  int users() const { return users_; }   // units that use it
  bool stays() const { return stays_; }  // from its first use to the last backward of the step

 protected:
  void set_gradients(std::unique_ptr<Gradients> gradients) { gradients_ = std::move(gradients); }

 private:
  friend ShardedStage;
  friend struct Model;
  enum class State { sharded, gathering, whole };
  std::unique_ptr<Gradients> gradients_;
  std::unique_ptr<Work> work_;
  State state_ = State::sharded;
  bool stays_ = false;
  bool around_ = false;  // a unit that runs others inside uses it
  int users_ = 0;
  int open_ = 0;  // units under way that use it, in a forward that a host drives
};

}  // namespace heddle::sharding
