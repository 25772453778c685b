// The wrapped unit, and the region that runs it again.
#include "core/parallel/recompute.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/model/wrapped_unit.h"
#include "core/parallel/forward_state.h"
#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/region.h"
#include "heddle/model/side_outputs.h"
#include "heddle/model/unit.h"

namespace heddle::parallel {
namespace {

using model::Region;
using torch::autograd::Node;

// One forward of a unit. The unit outlives the graph.
class UnitRegion final : public Region {
 public:
  UnitRegion(Keeps keeps, Unit& unit, const Tensors& inputs, const Batch& batch)
      : Region(keeps), unit_(unit), batch_(batch), state_(first_device(inputs)) {
    for (const at::Tensor& input : inputs) {
      inputs_.push_back({});
      if (input.defined())
        inputs_.back() = {input.tensor_data(), static_cast<uint32_t>(input._version()),
                          input.requires_grad()};
    }
  }
  ForwardState& state() { return state_; }

 protected:
  void run_again() override {
    const at::AutoGradMode with_gradients(true);
    const ForwardState::Again again(state_);
    const Batch batch = std::exchange(batch_, {});
    const SideOutputs::Again counted;
    unit_.forward(take_inputs(), batch);
  }

 private:
  struct Input {
    at::Tensor tensor;
    uint32_t version = 0;
    bool requires_grad = false;
  };

  // Leaves; their gradients are not used.
  Tensors take_inputs() {
    Tensors leaves;
    for (Input& input : inputs_) {
      if (input.tensor.defined() && input.tensor._version() != input.version)
        throw Error(
            ErrorCode::internal, "parallel",
            "an input of unit '" + std::string(unit_.name()) + "' was changed in place after its forward",
            "change a copy of it, or wait for the backward");
      if (input.requires_grad) input.tensor.set_requires_grad(true);
      leaves.push_back(std::move(input.tensor));
    }
    inputs_.clear();
    return leaves;
  }

  Unit& unit_;
  std::vector<Input> inputs_;
  Batch batch_;
  ForwardState state_;
};

std::set<const Node*> sources_of(const Tensors& tensors) {
  std::set<const Node*> nodes;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && tensor.grad_fn()) nodes.insert(tensor.grad_fn().get());
  return nodes;
}

// Nodes of ATen that keep no tensor.
bool keeps_nothing(const std::string& name) {
  static const std::set<std::string, std::less<>> kNames = {
      "AddBackward0",        "AliasBackward0",     "CloneBackward0",  "ExpandBackward0",
      "NegBackward0",        "PermuteBackward0",   "SelectBackward0", "SliceBackward0",
      "SubBackward0",        "TBackward0",         "ToCopyBackward0", "TransposeBackward0",
      "UnsafeViewBackward0", "UnsqueezeBackward0", "ViewBackward0",   "torch::autograd::AccumulateGrad"};
  return kNames.count(name) != 0;
}

// Whether nodes between the inputs' sources and the outputs keep tensors that a region cannot leave out.
bool keeps_by_itself(const Tensors& outputs, std::set<const Node*> seen) {
  std::vector<const Node*> open;
  const auto visit = [&](const Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const Node* source : sources_of(outputs)) visit(source);
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (dynamic_cast<const model::LayerNode*>(node) == nullptr && !keeps_nothing(node->name())) return true;
    for (const torch::autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
  }
  return false;
}

class Recomputed final : public model::WrappedUnit {
 public:
  Recomputed(std::unique_ptr<Unit> unit, ActivationCheckpointing mode)
      : WrappedUnit(std::move(unit)), mode_(mode) {
    if (unit_->module() == nullptr) form_ = Form::nested;
    if (mode_ == ActivationCheckpointing::selective) form_ = Form::region;
  }

  Tensors forward(Tensors inputs, const Batch& batch) override {
    if (!at::GradMode::is_enabled()) return unit_->forward(std::move(inputs), batch);
    if (form_ == Form::nested) return forward_nested(*unit_, std::move(inputs), batch);
    auto region = c10::make_intrusive<UnitRegion>(
        mode_ == ActivationCheckpointing::full ? Region::Keeps::nothing : Region::Keeps::costly_results,
        *unit_, inputs, batch);
    if (form_ == Form::region) return record(*region, std::move(inputs), batch);
    return forward_first(*region, std::move(inputs), batch);
  }

 private:
  // A module may use ATen's operators, whose nodes keep tensors themselves; the first graph shows it.
  enum class Form { unknown, region, nested };

  Tensors record(UnitRegion& region, Tensors inputs, const Batch& batch) {
    Tensors outputs;
    {
      const Region::Run run(region);
      outputs = unit_->forward(std::move(inputs), batch);
    }
    region.state().forward_ended();
    return outputs;
  }

  Tensors forward_first(UnitRegion& region, Tensors inputs, const Batch& batch) {
    Tensors outputs = record(region, inputs, batch);
    form_ = keeps_by_itself(outputs, sources_of(inputs)) ? Form::nested : Form::region;
    if (form_ == Form::region) return outputs;
    outputs.clear();
    region.state().rewind();
    const SideOutputs::Again counted;
    return forward_nested(*unit_, std::move(inputs), batch);
  }

  ActivationCheckpointing mode_;
  Form form_ = Form::unknown;
};

bool trains(Unit& unit) {
  for (const ParameterSlot& slot : unit.parameters())
    if (slot.trainable()) return true;
  return false;
}

void check(Unit& unit, ActivationCheckpointing mode) {
  if (mode != ActivationCheckpointing::selective || unit.module() != nullptr) return;
  throw Error(ErrorCode::config, "distributed.activation_checkpointing",
              "the unit '" + std::string(unit.name()) +
                  "' is a foreign model, whose operators selective activation checkpointing does not know",
              "write activation_checkpointing: full");
}

}  // namespace

std::unique_ptr<Unit> recomputed(std::unique_ptr<Unit> unit, ActivationCheckpointing mode) {
  if (mode == ActivationCheckpointing::none || !trains(*unit)) return unit;
  check(*unit, mode);
  return std::make_unique<Recomputed>(std::move(unit), mode);
}

void recompute(Units& units, const Unit* first, const Unit* last, ActivationCheckpointing mode) {
  for (std::unique_ptr<Unit>& unit : units)
    if (unit.get() != first && unit.get() != last) unit = recomputed(std::move(unit), mode);
}

void check_recompute(const Units& units, ActivationCheckpointing mode) {
  for (size_t i = 1; i + 1 < units.size(); ++i)
    if (trains(*units[i])) check(*units[i], mode);
}

}  // namespace heddle::parallel
