// Support for the hand-written autograd nodes of layers: saved tensors, and dispatch guards.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/region.h"

namespace heddle::model {

// Tensors that autograd nodes save for the backward.

// A tensor that the node of a layer saves for its backward. A node saves its tensors in the same order each
// time. Within a region it saves only an index, so that the tensor is freed after its last use in the
// forward, and the backward recomputes it.
class HEDDLE_API Saved {
 public:
  // Saves a value that is not an output of the node.
  void save(const at::Tensor& value) {
    if (Region* region = Region::active(); region != nullptr) [[unlikely]]
      return save_in(*region, value);
    keep(value);
  }
  // Saves a parameter. A leaf is held even within a region, because the model holds it anyway.
  void save_weight(const at::Tensor& weight);
  // Saves an output of the node. Called before the output is returned.
  void save_output(const at::Tensor& output);

  // Returns the value, recomputed if necessary. Throws Error{internal} if the value was modified in place, or
  // if the backward has already run.
  const at::Tensor& unpack();
  void reset();

 private:
  static constexpr int32_t kHeld = -1, kGone = -2;

  void keep(const at::Tensor& value) {
    value_ = value;
    if (value.defined()) version_ = value._version();
  }
  void save_in(Region& region, const at::Tensor& value);

  at::Tensor value_;
  c10::intrusive_ptr<Region> region_;
  uint32_t version_ = 0;
  int32_t place_ = kHeld;  // kHeld, kGone, or the index among the region's values
};

using Gradients = torch::autograd::variable_list;

// A scope in which ATen operators are not recorded by autograd and not cast by autocast, because layers
// choose dtypes themselves (autocast.h).
class BelowAutograd {
 private:
  at::AutoDispatchBelowADInplaceOrView no_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

// A node that computes its gradients below autograd. Supports one backward and no second derivatives. Its
// tensors are Saved, so that activation checkpointing can drop them.
class HEDDLE_API LayerNode : public torch::autograd::Node {
 public:
  explicit LayerNode(const char* name) : name_(name) {}
  ~LayerNode() override;
  std::string name() const override { return name_; }

 protected:
  // Returns one gradient per input of the forward; undefined where none is needed.
  virtual Gradients backward(Gradients&& gradients) = 0;
  Gradients apply(Gradients&& gradients) final;

 private:
  const char* name_;
};

// Returns the edge for the gradient of `tensor`, or no edge if the tensor is undefined.
inline torch::autograd::Edge edge_to(const at::Tensor& tensor) {
  return tensor.defined() ? torch::autograd::impl::gradient_edge(tensor) : torch::autograd::Edge();
}

// Creates a node with edges to `inputs`. Called after the forward, outside of BelowAutograd.
template <class NodeType, class... Inputs>
std::shared_ptr<NodeType> make_node(const Inputs&... inputs) {
  std::shared_ptr<NodeType> node(new NodeType(), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs...));
  return node;
}

// Runs the forward of a layer with one output: compute() below autograd, then sets the history of the output.
// If an input requires a gradient, save(node) fills the node first. Its edges lead to the inputs in their
// order.
template <class NodeType, class Save, class Compute, class... Inputs>
at::Tensor forward_with(const Save& save, const Compute& compute, const Inputs&... inputs) {
  std::shared_ptr<NodeType> node;
  if (torch::autograd::compute_requires_grad(inputs...)) {
    node = make_node<NodeType>(inputs...);
    save(*node);
  }
  at::Tensor y;
  {
    const BelowAutograd below;
    y = compute();
  }
  if (node) torch::autograd::set_history(y, node);
  return y;
}

// Runs a formula of ATen operators on `values` followed by `weights` (parameters) as one node, for operators
// that are too rare for a backward of their own. The forward calls the formula below autograd. The backward
// calls it again on the saved inputs and differentiates it with autograd; it must then skip the roundings
// between operators, which would also round gradients. If the formula only creates a shape on meta, `cost`
// records the cost of the forward or the backward.
using RecomputedFormula = std::function<at::Tensor(std::span<const at::Tensor> inputs, bool backward)>;
using RecomputedCost = std::function<void(std::span<const at::Tensor> inputs, bool backward)>;
HEDDLE_API at::Tensor recomputed(const char* name, std::vector<at::Tensor> values,
                                 std::vector<at::Tensor> weights, RecomputedFormula formula,
                                 RecomputedCost cost = {});

}  // namespace heddle::model
