// Module: a tree of named children and parameter slots, with seams for parallelizers.
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

// A place in a model where a parallelizer may add communication. An empty seam costs one branch.
class Seam {
 public:
  using Transform = std::function<at::Tensor(at::Tensor, const Batch&)>;
  // Runs after those added before.
  void add(Transform transform) { transforms_.push_back(std::move(transform)); }
  void add(std::function<at::Tensor(at::Tensor)> transform) {
    add([transform = std::move(transform)](at::Tensor x, const Batch&) { return transform(std::move(x)); });
  }
  bool empty() const { return transforms_.empty(); }
  size_t size() const { return transforms_.size(); }
  // Replaces those from the place `first` on by what `wrap` makes of them: for the engine, which names the
  // plugin of each in errors.
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

// How a module computes the rows of hidden states, each of one token.
enum class TokenUse {
  undeclared,  // refused along axes whose ranks hold parts of the tokens
  each_alone,  // a row follows from that row, the parameters and the batch's values of its token
  mixes        // other tokens' rows count: attention, a convolution, a token shift
};

// What a module is in a model, for parallelizers.
enum class Role {
  other,
  projection,  // a Linear that a plan may split
  embedding,   // an Embedding
  norm,        // over the last dim: hidden states, or heads within an attention
  attention,   // holds the projections of attention and an attention_core; own slots have a number a head
  attention_core,
  mixer,  // mixes tokens and is no attention
  head,   // holds the last projection and the loss
  loss,
  router,
  experts
};

// What core and parallelizers must know of a module before there is a mesh.
struct ModuleTraits {
  TokenUse tokens = TokenUse::undeclared;  // of its own forward, without its children's
  // Of a module that mixes tokens: axes along which it is right although each rank holds a part of them,
  // because it communicates itself or a parallelizer of its plugin does. "tp": under sequence parallelism.
  std::vector<std::string> token_axes = {};
  std::vector<Refusal> refuses = {};  // axes along which the model cannot be trained
  Role role = Role::other;
  bool draws = false;  // its forward reads Batch::draws
  // Of a mixer whose layers a plan may split: keys of config.json and numbers of heads, which the ranks must
  // divide. Its own slots and its norms are those of single heads.
  std::vector<std::pair<std::string, int64_t>> heads = {};
};

// Children and slots are registered by pointer: a Module does not move.
class HEDDLE_API Module {
 public:
  Module() = default;
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual std::string_view kind()
      const = 0;  // "linear", "embedding", "rms_norm", "attention", "decoder_layer", ...

  // The same as long as the module lives. The default declares nothing.
  virtual ModuleTraits traits() const;

  Seam input, output;  // before and after forward

  // input seam, forward, output seam.
  at::Tensor call(at::Tensor x, const Batch& batch) {
    return output(forward(input(std::move(x), batch), batch), batch);
  }

  const std::vector<std::pair<std::string, Module*>>& children() const { return children_; }
  // Own slots, with names relative to this module ("weight").
  std::vector<ParameterSlot>& slots() { return slots_; }
  // Own auxiliary losses and metrics.
  const std::vector<SideOutput*>& side_outputs() const { return side_outputs_; }
  // Visits this module and all below it; paths are joined with dots under `prefix`.
  void visit(const std::string& prefix, const std::function<void(const std::string& path, Module&)>& visitor);
  // All slots below, with full names.
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

// For a parallelizer that gives each rank along `axis` a part of the tokens: throws Error{config} at `where`
// with the module's path and kind unless it computes each token alone or has a rule for the axis.
// `hint` says how to train without the axis: "set cp_size: 1".
HEDDLE_API void refuse_mixed_tokens(const Module& module, const std::string& path, const std::string& axis,
                                    const std::string& where, const std::string& hint);

// An additional interface of a Module or a Unit with values that change after each step and that no gradient
// reaches (the correction bias of a router). Values that files and checkpoints have are slots that do not
// train (Updated::frozen). Found by dynamic_cast when the stages are built.
class HEDDLE_API AfterUpdate {
 public:
  virtual ~AfterUpdate();
  // After the optimizer's update of every step, on every rank that holds the module.
  virtual void after_update(const Updated& updated, const DeviceMesh& mesh) = 0;
  // False: it has nothing to do in this run, and is not told. Asked once, when the run is built.
  virtual bool wants_updates() const { return true; }
  // Before the first step, where it wants updates. The groups of the mesh outlive it.
  virtual void before_run(const DeviceMesh& mesh);
};

}  // namespace heddle
