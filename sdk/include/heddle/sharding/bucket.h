// The interface of a sharded strategy: memory layout of parameters, gathering, and gradient reduction. The
// sharding engine decides when to call it.
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

// The ranks that share parameters.

// The groups of ranks for the parameters of one reduction. Pointers are null for a group of one rank. The
// groups live as long as the mesh.
struct Groups {
  Reduction axes;
  int shards = 1, shard = 0;      // number of ranks that shard, and this rank's index
  int replicas = 1, replica = 0;  // number of replicas, and this rank's index
  Communicator* gather = nullptr;
  // A second group with the ranks of `gather`, for reductions. It allows a separate order, because a rank
  // without a gradient reduces later than the others.
  std::shared_ptr<Communicator> reduce;
  Communicator* across = nullptr;  // over the replicas
  Communicator* all = nullptr;
  c10::Device device = at::kCPU;  // device of parameters without storage

  int ranks() const { return shards * replicas; }
};

// Creates the groups for the parameters of one reduction. Called in the same order on every rank.
Groups groups_over(const DeviceMesh& mesh, Reduction axes);

// Returns the values of a slot's tensor on the first rank, because ranks may have different values: a copy on
// `tensor`'s device, or `tensor` itself for one rank and on meta. A collective.
at::Tensor first_values(const at::Tensor& tensor, const Groups& groups);

class Reducer;
class ShardedStage;
class Bucket;

// One parameter of a bucket.
struct Parameter {
  std::string name;
  at::Tensor leaf;            // the model's tensor, in which autograd accumulates the gradient
  std::vector<Shard> shards;  // the boxes that this rank owns; one empty shard if it owns nothing
  bool trainable() const { return leaf.requires_grad(); }
};

// The gradients of one bucket. Every function is called in the same order on every rank, even if this rank
// has no gradient. Missing gradients count as zero.
class Gradients {
 public:
  virtual ~Gradients() = default;

  virtual void begin_step() = 0;  // before the first forward of a step: discards the last step's gradients
  // Called before a backward adds gradients to the bucket, if opens(). Its reduction is finished by then. A
  // leaf may already have a gradient from a value that bypassed its unit's outputs; the backward adds to it.
  virtual void open() {}
  virtual bool opens() const { return false; }
  // Keeps the gradients of a backward until those of further microbatches arrive. May be called several
  // times.
  virtual void keep() {}
  // Takes the gradients from the leaves and starts their reduction over the sharding ranks. Returns null if
  // it is complete.
  virtual std::unique_ptr<Work> reduce() = 0;
  virtual void reduced() = 0;  // the reduction of a microbatch or of the step is complete
  // Starts the reduction over the replicas, once per step after the last reduced(). Returns null if there is
  // none or it is complete.
  virtual std::unique_ptr<Work> reduce_replicas() { return nullptr; }
  virtual void replicas_reduced() {}
  // Returns whether this rank had a gradient of trainable parameter i in this step. Called after reduce() if
  // Policy::agree_on_used.
  virtual bool had(size_t i) const { return true; }
  // Returns the ranks of the reduction; null: those of the stage.
  virtual const Groups* groups() const { return nullptr; }
  // Sets shard.tensor.grad() of every shard. used[i]: whether any rank had a gradient of trainable parameter
  // i; otherwise its gradient stays undefined. Without Policy::agree_on_used the span is empty, and the
  // bucket tracks this itself.
  virtual void place(std::span<const char> used) = 0;

 private:
  friend Reducer;
  friend ShardedStage;
  bool ready_ = false, in_flight_ = false;
  int64_t elements_ = 0;
  size_t turn_ = 0;  // index in the order of reductions
};

// Parameters that are gathered, freed and reduced together. Freed storage stays attached to the views of the
// leaves, so that tensors saved by autograd are valid again after the storage is refilled (TransientStorage).
class Bucket {
 public:
  virtual ~Bucket() = default;

  // Returns the parameters. Called when the model is created, not during a step.
  virtual std::vector<Parameter> parameters() const = 0;
  // Returns the cost of gathering the bucket, in elements.
  virtual int64_t elements() const = 0;
  // Returns whether whole parameters are freed after use. If false, they stay, and are gathered only after an
  // update.
  virtual bool transient() const = 0;
  // Allocates storage for the whole parameters and starts the gather. Returns null if it is complete.
  virtual std::unique_ptr<Work> gather() = 0;
  virtual void gathered() {}  // called when the gather is complete
  // Returns whether a gather needs extra memory besides the whole parameters until gathered(). Then unshard()
  // starts it only shortly before the unit runs.
  virtual bool gathers_beside() const { return false; }
  virtual void free() {}  // frees the storage of a transient bucket
  // Called when the owned shards have new values. Returns false if the whole parameters have them too.
  virtual bool changed() { return true; }

  // Returns the gradients, or null if the bucket is not trainable.
  Gradients* gradients() const { return gradients_.get(); }
  int users() const { return users_; }   // number of units that use the bucket
  bool stays() const { return stays_; }  // whole from first use to the last backward of the step

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
  bool around_ = false;  // used by a unit that runs other units inside
  int users_ = 0;
  int open_ = 0;  // in a forward that a host drives: running units that use it
};

}  // namespace heddle::sharding
