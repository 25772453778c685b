// Module, a tree of named children and parameter slots, with seams for parallelizers.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/config/axes.h"
#include "heddle/model/batch.h"
#include "heddle/model/side_outputs.h"
#include "heddle/model/slot.h"

namespace heddle {

class DeviceMesh;

// A place in a model at which a parallelizer may add communication. An empty seam costs one branch.
class Seam {
 public:
  using Transform = std::function<at::Tensor(at::Tensor, const Batch&)>;
  // Adds a transform that runs after the transforms added before.
  void add(Transform transform) { transforms_.push_back(std::move(transform)); }
  void add(std::function<at::Tensor(at::Tensor)> transform) {
    add([transform = std::move(transform)](at::Tensor x, const Batch&) { return transform(std::move(x)); });
  }
  bool empty() const { return transforms_.empty(); }
  size_t size() const { return transforms_.size(); }
  // Wraps the transforms from index `first` on. The engine uses it to name the plugin of each transform in
  // errors.
  void wrap(size_t first, const std::function<Transform(Transform)>& wrapper) {
    for (size_t i = first; i < transforms_.size(); ++i) transforms_[i] = wrapper(std::move(transforms_[i]));
  }
  at::Tensor operator()(at::Tensor tensor, const Batch& batch) const {
    for (const Transform& transform : transforms_) tensor = transform(std::move(tensor), batch);
    return tensor;
  }

 private:
  std::vector<Transform> transforms_;
};

// How a module computes the rows of hidden states. Each row belongs to one token.
enum class TokenUse {
  undeclared,  // refused along axes whose ranks hold parts of the tokens
  each_alone,  // a row depends only on that row, the parameters and the batch's values of that token
  mixes        // a row depends on rows of other tokens: attention, a convolution, a token shift
};

// The role of a module in a model, for parallelizers.
enum class Role {
  other,
  projection,  // a Linear that a plan may split
  embedding,   // an Embedding
  norm,        // over the last dim: of hidden states, or of heads within an attention
  attention,   // has the projections and an attention_core; its own slots have one element per head
  attention_core,
  mixer,  // mixes tokens, but is not attention
  head,   // has the last projection and the loss
  loss,
  router,
  experts
};

// Properties of a module that core and parallelizers need before there is a mesh.
struct ModuleTraits {
  TokenUse tokens = TokenUse::undeclared;  // token use of its own forward, without its children
  // Axes along which a token-mixing module is correct although each rank has only a part of the tokens,
  // because the module or a parallelizer of its plugin communicates. "tp" refers to sequence parallelism.
  std::vector<std::string> token_axes = {};
  std::vector<Refusal> refuses = {};  // axes along which the model cannot be trained
  Role role = Role::other;
  bool draws = false;  // whether its forward reads Batch::draws
  // Numbers of heads of a mixer whose layers a plan may split, with their keys in config.json. The number of
  // ranks must divide them. Its own slots and norms belong to single heads.
  std::vector<std::pair<std::string, int64_t>> heads = {};
  // Whether a module with Role::norm computes each element of the output from that element of the input and
  // the parameters, so that ranks of tp may have parts of a row (an activation with parameters).
  bool elementwise = false;
};

// A part of a model. Children and slots are registered by pointer, so a Module does not move.
class HEDDLE_API Module {
 public:
  Module() = default;
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual std::string_view kind()
      const = 0;  // "linear", "embedding", "rms_norm", "attention", "decoder_layer", ...

  // Returns the traits, which stay the same for the lifetime of the module. By default nothing is declared.
  virtual ModuleTraits traits() const;

  Seam input, output;  // applied before and after forward

  // Applies the input seam, the forward and the output seam.
  at::Tensor call(at::Tensor x, const Batch& batch) {
    return output(forward(input(std::move(x), batch), batch), batch);
  }

  const std::vector<std::pair<std::string, Module*>>& children() const { return children_; }
  // Slots of this module, with names relative to it ("weight").
  std::vector<ParameterSlot>& slots() { return slots_; }
  // Auxiliary losses and metrics of this module.
  const std::vector<SideOutput*>& side_outputs() const { return side_outputs_; }
  // Visits this module and its descendants. Paths are joined with dots under `prefix`.
  void visit(const std::string& prefix, const std::function<void(const std::string& path, Module&)>& visitor);
  // Returns all slots of this module and its descendants, with full names.
  std::vector<ParameterSlot> parameters(const std::string& prefix);

 protected:
  virtual at::Tensor forward(at::Tensor x, const Batch& batch) = 0;
  void add_child(std::string name, Module& child) { children_.emplace_back(std::move(name), &child); }
  void add_slot(std::string name, at::Tensor& tensor, Init init);
  void add_side_output(SideOutput& output) { side_outputs_.push_back(&output); }

 private:
  std::vector<std::pair<std::string, Module*>> children_;
  std::vector<ParameterSlot> slots_;
  std::vector<SideOutput*> side_outputs_;
};

// Throws Error{config} at `where`, with the module's path and kind, unless the module computes each token
// alone or declares the axis in token_axes. For a parallelizer that splits tokens along `axis`. hint: how to
// train without the axis, such as "set cp_size: 1".
HEDDLE_API void refuse_mixed_tokens(const Module& module, const std::string& path, const std::string& axis,
                                    const std::string& where, const std::string& hint);

// An additional base of a Module or a Unit whose values change after each step without a gradient, such as
// the correction bias of a router. Values that are stored in files and checkpoints are slots that do not
// train (Updated::frozen). Found by dynamic_cast when the stages are built.
class HEDDLE_API AfterUpdate {
 public:
  virtual ~AfterUpdate();
  // Called after the optimizer update of every step, on every rank that has the module.
  virtual void after_update(const Updated& updated, const DeviceMesh& mesh) = 0;
  // Returns whether after_update() is to be called in this run. Called once, when the run is built.
  virtual bool wants_updates() const { return true; }
  // Called before the first step if wants_updates(). The groups of the mesh outlive this object.
  virtual void before_run(const DeviceMesh& mesh);
};

}  // namespace heddle
