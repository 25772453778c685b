// What the hand-written autograd nodes of the layers share: recording, and guards around the backward.
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

// A tensor that an autograd node keeps for its backward, or, within a region, the place of one that is
// computed again.

// Nodes of layers keep with it whatever their backward needs, always in the same order. Outside of a region
// it holds the tensor; within one only an index, so that the tensor goes when the forward has used it.
class HEDDLE_API Saved {
 public:
  // A value that is not an output of the node.
  void save(const at::Tensor& value) {
    if (Region* region = Region::active(); region != nullptr) [[unlikely]]
      return save_in(*region, value);
    keep(value);
  }
  // The same for a parameter: a leaf is kept also within a region, because the model holds it anyway.
  void save_weight(const at::Tensor& weight);
  // One of the node's own outputs; called before it is returned.
  void save_output(const at::Tensor& output);

  // The value, recomputed if necessary. Throws Error{internal} if the value was changed in place, or if the
  // backward has already run.
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
  int32_t place_ = kHeld;  // or the index among the region's values
};

using Gradients = torch::autograd::variable_list;

// Operators of ATen in this scope are not recorded, and autocast does not touch them: layers choose dtypes
// themselves (autocast.h).
class BelowAutograd {
 private:
  at::AutoDispatchBelowADInplaceOrView no_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

// A node that computes its gradients below autograd. One backward only, and no second derivatives. It keeps
// tensors as Saved, so that activation checkpointing can leave them out.
class HEDDLE_API LayerNode : public torch::autograd::Node {
 public:
  explicit LayerNode(const char* name) : name_(name) {}
  ~LayerNode() override;
  std::string name() const override { return name_; }

 protected:
  // One gradient per input of the forward, undefined where none is needed.
  virtual Gradients backward(Gradients&& gradients) = 0;
  Gradients apply(Gradients&& gradients) final;

 private:
  const char* name_;
};

// The edge for the gradient of `tensor`; no edge if it is undefined.
inline torch::autograd::Edge edge_to(const at::Tensor& tensor) {
  return tensor.defined() ? torch::autograd::impl::gradient_edge(tensor) : torch::autograd::Edge();
}

// Makes `node` the source of `output`, with edges to `inputs`; call it above the dispatch guard, after the
// forward.
template <class NodeType, class... Inputs>
std::shared_ptr<NodeType> make_node(const Inputs&... inputs) {
  std::shared_ptr<NodeType> node(new NodeType(), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs...));
  return node;
}

// The forward of a layer with one output: compute() below autograd, then the output's history. Where an input
// asks for a gradient, save(node) fills the node before; its edges go to the inputs, in their order.
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

// The output of a formula, by operators of ATen, of `values` and then of `weights`, parameters, as one node.
// Its backward computes the formula again on the inputs that the node kept and differentiates it by autograd:
// for operators that are too rare for a backward of their own. In the forward the formula is called below
// autograd; in the backward it leaves out roundings between operators, which would round gradients too. cost,
// where the formula makes only a shape on meta: records what the forward or the backward costs.
using RecomputedFormula = std::function<at::Tensor(std::span<const at::Tensor> inputs, bool backward)>;
using RecomputedCost = std::function<void(std::span<const at::Tensor> inputs, bool backward)>;
HEDDLE_API at::Tensor recomputed(const char* name, std::vector<at::Tensor> values,
                                 std::vector<at::Tensor> weights, RecomputedFormula formula,
                                 RecomputedCost cost = {});

}  // namespace heddle::model
