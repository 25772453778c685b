// BackwardWalk, which tracks the backward of a stage, for strategies that gather before each unit and reduce
// after it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "heddle/model/unit.h"
#include "heddle/nn/weight_gradients.h"

namespace torch::autograd {
struct Node;
}

namespace heddle {

// Watches the outputs of units and the gradients of parameters, and tells the strategy what comes next. Works
// for whole and split backwards (WeightGradients) and for recomputed units. Units are numbered in forward
// order. Trainable parameters are in buckets whose gradients are reduced together. (PyTorch's FSDP and
// Megatron-Core find the same events with their own hooks.)
class BackwardWalk {
 public:
  // Callbacks of the strategy, in the thread of the backward.
  class Stops {
   public:
    virtual ~Stops() = default;
    // Called first in a backward.
    virtual void began() {}
    // Called when a gradient arrives for an output of a unit that this backward has already passed.
    virtual void reached_again(size_t unit) {}
    // Called when the backward has passed the units of one forward. another: whether it has reached another
    // forward on this rank. Returns whether the walk begins again at the last unit, equal on every rank.
    virtual bool passed_forward(bool another) { return false; }
    // Called once per backward for every unit with a backward, from the last to the first, even if this rank
    // has no gradient for it, so that collectives started here match those of other ranks. The backward of
    // later units is done, so parameters that only later units use can be freed.
    virtual void approach(size_t unit) = 0;
    // Called when a gradient of the unit's output has arrived, before the unit's backward needs its
    // parameters.
    virtual void enter(size_t unit) = 0;
    // Called when every parameter of the bucket has its gradient of this backward. The unit may still read
    // the parameters to compute the gradient of its input.
    virtual void complete(size_t bucket) = 0;
    // Called when the backward is done. queue: the deferred gradients of a split backward, else null.
    virtual void ended(WeightGradients* queue) = 0;
    // Called before a queue with gradients for this bucket is drained.
    virtual void awaits(size_t bucket) {}
    // Called after the queue was drained.
    virtual void drained() = 0;
  };

  // `stops` and the walk outlive the graphs of the watched forwards.
  BackwardWalk(Stops& stops, size_t units);
  ~BackwardWalk();
  BackwardWalk(const BackwardWalk&) = delete;
  BackwardWalk& operator=(const BackwardWalk&) = delete;

  // Adds a trainable parameter before the first forward. units: number of units that use it. If there are
  // several and units are recomputed, its gradient may arrive in parts, so its bucket is complete only at the
  // end.
  void add(const at::Tensor& leaf, size_t bucket, int units = 1);

  // Marks a bucket whose parameters several units use, so that it is complete only at the end.
  void share(size_t bucket) { buckets_[bucket].shared = true; }

  // Called after the forward of each unit. Returns whether a backward will come. Does nothing without
  // gradients.
  bool watch(size_t unit, const Tensors& outputs, WeightGradients* queue);

  // For forwards that a host drives, where the order of units is found in the first one.
  // Hooks from here on belong to a new forward. A backward may cover several.
  void new_forward() { ++forward_; }
  // Only adds the hooks of watch(). Returns whether an output requires a gradient.
  bool hook(size_t unit, const Tensors& outputs, WeightGradients* queue);
  // Hooks outputs whose gradients begin the backward and belong to no unit.
  void hook_start(const Tensors& outputs);
  // Begins the walk of the running backward, unless it has begun. Throws if no backward runs.
  void begin();
  // Continues the running backward with the units of another forward.
  void begin_next_forward();
  // Sets whether a backward of the unit comes, overriding the result of watch().
  void expect(size_t unit, bool backward);
  // Renumbers the units. places[i]: the new index, among `units`, of the unit with index i in previous hooks.
  void renumber(std::vector<size_t> places, size_t units);

  bool running() const { return running_; }  // a backward has begun and not ended, also after an exception
  bool split() const { return split_; }      // whether the current or last backward is split
  bool draining() const { return draining_; }
  bool has_backward(size_t unit) const { return has_backward_[unit] != 0; }
  size_t unreached() const { return unreached_; }  // in a backward: units from this index on are reached

 private:
  struct Reached;
  struct Bucket {
    int parameters = 0, arrived = 0;
    bool shared = false;
    uint16_t backward = 1;  // number of the backward, modulo 2^16
  };
  void reach_forward(size_t forward);
  void reach(size_t unit, bool renumbered);
  void begin(size_t forward, WeightGradients* queue);
  bool pass_forward(bool another);
  void end(WeightGradients* queue);
  void approach_rest();
  void arrive(size_t bucket, uint16_t& last);
  void begin_drain(const WeightGradients::Accumulators& leaves);
  void end_drain();
  void forget_arrivals();

  Stops& stops_;
  std::vector<char> has_backward_;  // per unit: whether its last forward has a backward
  std::vector<size_t> places_;      // new indices for hooks before renumber(); empty: no hooks
  std::vector<Bucket> buckets_;
  // Autograd holds accumulators only weakly.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  std::unordered_map<const torch::autograd::Node*, size_t> bucket_of_;
  bool running_ = false, split_ = false, draining_ = false;
  size_t unreached_ = 0;  // units below this index are not reached yet in the running backward
  size_t forward_ = 0,
         backward_forward_ = 0;  // number of the last forward, and of the one that the backward is in
};

}  // namespace heddle
