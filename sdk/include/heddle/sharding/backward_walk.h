// Tracks the backward of a stage, for strategies that gather before each unit and reduce after it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "heddle/model/unit.h"
#include "heddle/nn/weight_gradients.h"

namespace torch::autograd {
struct Node;
}

namespace heddle {

// A stage's units are numbered in the order of the forward, and its trainable parameters are in buckets whose
// gradients are reduced together. The walk watches the units' outputs and the parameters' gradients and tells
// the strategy what comes next, for whole and split backwards (WeightGradients) and recomputed units (FSDP of
// PyTorch and Megatron-Core find the same points with hooks of their own).
class BackwardWalk {
 public:
  // The strategy's callbacks, in the thread of the backward.
  class Stops {
   public:
    virtual ~Stops() = default;
    // A backward begins: before anything else of it.
    virtual void began() {}
    // A gradient of an output of a unit that this backward has passed has arrived.
    virtual void reached_again(size_t unit) {}
    // The backward has passed the units of one forward. `another`: on this rank it has reached another
    // forward. Returns whether the walk begins again at the last unit: the same on every rank.
    virtual bool passed_forward(bool another) { return false; }
    // Once per backward for every unit that has one, from the last to the first, on every rank, also if this
    // rank has no gradient for the unit: collectives started here match those of the other ranks. The
    // backward of the units above is done, so parameters that only they use can be freed.
    virtual void approach(size_t unit) = 0;
    // A gradient of the unit's output has arrived: its own backward is next and needs its parameters.
    virtual void enter(size_t unit) = 0;
    // Every parameter of the bucket has its gradient of this backward. The unit may still read them, for the
    // gradient of its input.
    virtual void complete(size_t bucket) = 0;
    // The backward is done. `queue` holds the deferred gradients if it was split, else it is null.
    virtual void ended(WeightGradients* queue) = 0;
    // A queue is about to be drained and has gradients for this bucket.
    virtual void awaits(size_t bucket) {}
    // It is drained.
    virtual void drained() = 0;
  };

  // `stops` and this outlive the graphs of the forwards that were watched.
  BackwardWalk(Stops& stops, size_t units);
  ~BackwardWalk();
  BackwardWalk(const BackwardWalk&) = delete;
  BackwardWalk& operator=(const BackwardWalk&) = delete;

  // Before the first forward, for each trainable parameter. `units`: how many use it. With several its
  // gradient may come in parts if units are recomputed, so its bucket is not complete before the end.
  void add(const at::Tensor& leaf, size_t bucket, int units = 1);

  // The parameters of the bucket are used by several units: it is not complete before the end.
  void share(size_t bucket) { buckets_[bucket].shared = true; }

  // After the forward of each unit. Returns whether a backward will come; without gradients it does nothing.
  bool watch(size_t unit, const Tensors& outputs, WeightGradients* queue);

  // For forwards that a host drives, where the order of units is found in the first one.
  // Hooks from here on belong to a new forward. A backward may cover several.
  void new_forward() { ++forward_; }
  // Only adds the hooks of watch(). Returns whether an output requires a gradient.
  bool hook(size_t unit, const Tensors& outputs, WeightGradients* queue);
  // Gradients of these outputs begin the backward and reach no unit.
  void hook_start(const Tensors& outputs);
  // The running backward begins, unless it has. Throws where no backward runs.
  void begin();
  // The running backward goes on with another forward.
  void begin_next_forward();
  // Whether a backward of the unit comes, in place of what watch() finds.
  void expect(size_t unit, bool backward);
  // places[i]: the number that the unit i of the hooks so far has from now on, of `units`.
  void renumber(std::vector<size_t> places, size_t units);

  bool running() const { return running_; }  // it began and has not ended, also after an exception
  bool split() const { return split_; }      // the current or last one
  bool draining() const { return draining_; }
  bool has_backward(size_t unit) const { return has_backward_[unit] != 0; }
  size_t unreached() const { return unreached_; }  // in a backward: units from here on are reached

 private:
  struct Reached;
  struct Bucket {
    int parameters = 0, arrived = 0;
    bool shared = false;
  };
  void reach_forward(size_t forward);
  void reach(size_t unit, bool renumbered);
  void begin(size_t forward, WeightGradients* queue);
  bool pass_forward(bool another);
  void end(WeightGradients* queue);
  void approach_rest();
  void arrive(size_t bucket);
  void begin_drain(const WeightGradients::Accumulators& leaves);
  void end_drain();
  void forget_arrivals();

  Stops& stops_;
  std::vector<char> has_backward_;  // of each unit, by its last forward
  std::vector<size_t> places_;      // of hooks before renumber(); empty: none came
  std::vector<Bucket> buckets_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;  // autograd itself holds them weakly
  std::unordered_map<const torch::autograd::Node*, size_t> bucket_of_;
  bool running_ = false, split_ = false, draining_ = false;
  size_t unreached_ = 0;  // in a backward: units below this one
  size_t forward_ = 0,
         backward_forward_ = 0;  // number of the last forward, and of the one that the backward is in
};

}  // namespace heddle
