// What a sharded strategy brings: how parameters lie in memory, how they are gathered, and how their
// gradients are summed. When that happens is the engine's.
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
#include "heddle/parallel/shard.h"

namespace heddle::sharding {

class Reducer;
class ShardedStage;
class Bucket;
struct Groups;

// One parameter of a bucket, as its constructor laid it out.
struct Parameter {
  std::string name;
  at::Tensor leaf;            // what the model computes with and autograd fills the gradient of
  std::vector<Shard> shards;  // the boxes that this rank owns; one of numel 0 where it owns nothing
  bool trainable() const { return leaf.requires_grad(); }
};

// The gradients of one bucket. Every function is called in the same order on every rank, also where this rank
// has no gradient: what is missing counts as zero.
class Gradients {
 public:
  virtual ~Gradients() = default;

  virtual void begin_step() = 0;  // before the first forward of a step: what the last one left is dropped
  // Before a backward adds gradients to it; only where opens(). A reduction of it is finished by then.
  virtual void open() {}
  virtual bool opens() const { return false; }
  // Gradients of a backward have come and wait for those of further microbatches. May be called several
  // times.
  virtual void keep() {}
  // Takes the gradients off the leaves and starts their sum over the ranks that split; null: it is done.
  virtual std::unique_ptr<Work> reduce() = 0;
  virtual void reduced() = 0;  // the sum is there: of a microbatch, or of the step
  // The sum over the replicas, once a step, after the last reduced(); null: there is none, or it is done.
  virtual std::unique_ptr<Work> reduce_replicas() { return nullptr; }
  virtual void replicas_reduced() {}
  // This rank had a gradient of trainable parameter i in this step. Read after reduce() where
  // Policy::agree_on_used.
  virtual bool had(size_t i) const { return true; }
  // The ranks over which they are summed; null: those of the stage.
  virtual const Groups* groups() const { return nullptr; }
  // Gives shard.tensor.grad() of every shard. used[i]: some rank had a gradient of trainable parameter i,
  // else the gradient stays undefined. Without Policy::agree_on_used the span is empty, and the bucket knows.
  virtual void place(std::span<const char> used) = 0;

 private:
  friend Reducer;
  friend ShardedStage;
  bool ready_ = false, in_flight_ = false;
  int64_t elements_ = 0;
  size_t turn_ = 0;  // its place in the order of reductions
};

// Parameters that are gathered, freed and reduced together. Storage that is freed stays under the leaves'
// views, so that tensors which autograd saved see the values when it is filled again (TransientStorage).
class Bucket {
 public:
  virtual ~Bucket() = default;

  // What was laid out; called when the model is made, and not on the way.
  virtual std::vector<Parameter> parameters() const = 0;
  // Of the whole bucket: what a gather costs, in elements.
  virtual int64_t elements() const = 0;
  // Whole parameters are freed after use. False: they stay, and are gathered after an update alone.
  virtual bool transient() const = 0;
  // Takes storage for the whole parameters and starts to gather them; null: they are there.
  virtual std::unique_ptr<Work> gather() = 0;
  virtual void gathered() {}  // what gather() started is through
  virtual void free() {}      // of transient buckets: the storage goes
  // The owned shards have new values. False: the whole parameters have them too.
  virtual bool changed() { return true; }

  // Null: nothing of it trains.
  Gradients* gradients() const { return gradients_.get(); }
  int users() const { return users_; }   // units that compute with it
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
  int users_ = 0;
};

}  // namespace heddle::sharding
