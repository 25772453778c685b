// Deferred weight gradients: the second half of a split backward, queued per microbatch and stage.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <functional>
#include <utility>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

// Zero-bubble schedules (Qi et al. 2024) send the gradient of a stage's input before they compute the
// gradients of its weights. Action I calls defer() and runs an ordinary accumulating backward, in which
// layers push the computation of their weight gradients. Action W calls drain(). The runner of the schedule
// has one queue per microbatch in flight on a stage, and sets it in the microbatch's Batch. The queue
// outlives the microbatch's graph and is reused. Called from the thread that runs the stage.
class HEDDLE_API WeightGradients {
 public:
  using Gradients = std::vector<at::Tensor>;
  using Leaves = std::vector<torch::autograd::Edge>;

  // Makes the next backward of this microbatch push its weight gradients here. Otherwise the backward is
  // complete.
  void defer() { defers_ = true; }
  bool defers() const { return defers_; }

  // Adds a computation; called by layers in a deferring backward. `compute` returns one gradient per leaf,
  // undefined for an edge that is not valid. Edges must lead to leaves (is_leaf), because the graph is
  // released before drain(). `compute` and its tensors are freed after it has run.
  void push(Leaves leaves, std::function<Gradients()> compute);
  static bool is_leaf(const torch::autograd::Edge& edge);

  // Computes all deferred gradients in the order of the pushes, and accumulates them through autograd, so
  // that hooks fire once per leaf with the sum of its uses. Then calls the when_drained() callbacks. Does
  // nothing for an empty queue.
  void drain();
  bool empty() const { return waiting_.empty(); }

  // Register callbacks of strategies for the next drain(): at its beginning, with each accumulator that will
  // get a gradient, and at its end.
  using Accumulators = std::vector<const torch::autograd::Node*>;
  void when_draining(std::function<void(const Accumulators&)> call) { begins_.push_back(std::move(call)); }
  void when_drained(std::function<void()> call) { ends_.push_back(std::move(call)); }

 private:
  struct Waiting {
    Leaves leaves;
    std::function<Gradients()> compute;
  };
  Accumulators awaited() const;

  bool defers_ = false;
  std::vector<Waiting> waiting_;
  std::vector<std::function<void(const Accumulators&)>> begins_;
  std::vector<std::function<void()>> ends_;
};

}  // namespace heddle
