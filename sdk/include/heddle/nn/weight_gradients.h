// Deferred weight gradients: the second half of a split backward, queued for one microbatch of one stage.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <functional>
#include <utility>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

// Zero-bubble schedules (Qi et al. 2024) send the gradient of a stage's input on before the gradients of its
// weights exist. I: defer(), then an ordinary accumulating backward; layers push the computation for their
// weights. W: drain(). The runner of the schedule has one queue for each microbatch in flight on a stage and
// puts it into the microbatch's Batch; it outlives the microbatch's graph and is reused. Called from the
// thread that runs the stage.
class HEDDLE_API WeightGradients {
 public:
  using Gradients = std::vector<at::Tensor>;
  using Leaves = std::vector<torch::autograd::Edge>;

  // The next backward of this microbatch leaves weight gradients here. Without it the backward is whole.
  void defer() { defers_ = true; }
  bool defers() const { return defers_; }

  // For layers, in such a backward: `compute` returns one gradient for each leaf, undefined where the edge is
  // not valid. Edges must lead to leaves (is_leaf), because the graph above is released before the queue is
  // drained. `compute` and its tensors are freed as soon as it has run.
  void push(Leaves leaves, std::function<Gradients()> compute);
  static bool is_leaf(const torch::autograd::Edge& edge);

  // Computes all deferred gradients and runs them into the leaves' accumulators through autograd, in the
  // order of the pushes, so their hooks fire: once per leaf, with the sum of its uses. Then calls the
  // when_drained() callbacks. An empty queue is drained at once.
  void drain();
  bool empty() const { return waiting_.empty(); }

  // For strategies: callbacks for the next drain() only: at its beginning, with the accumulators of the
  // leaves that will get a gradient in it, each once; and at its end.
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
