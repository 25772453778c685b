// Checks which leaves the graph of a unit reaches, and gradients along two directions of each parameter.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "../attempt.h"
#include "built_model.h"
#include "forward_checks.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/embedding.h"
#include "lib/testing/whole_tensors.h"

namespace heddle::kits {
namespace {

using GraphNode = torch::autograd::Node;

// Returns the leaves whose gradients a backward from `outputs` would accumulate.
std::vector<at::Tensor> leaves_of(const Tensors& outputs) {
  std::vector<at::Tensor> leaves;
  std::set<GraphNode*> seen;
  std::vector<GraphNode*> left;
  const auto add = [&](GraphNode* node) {
    if (node != nullptr && seen.insert(node).second) left.push_back(node);
  };
  for (const at::Tensor& output : outputs)
    if (output.defined()) add(output.grad_fn().get());
  while (!left.empty()) {
    GraphNode* const node = left.back();
    left.pop_back();
    if (auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) leaves.push_back(leaf->variable);
    for (const auto& edge : node->next_edges()) add(edge.function.get());
  }
  return leaves;
}

// Returns the unit that has the tensor among its slots, or null.
const Unit* owner_of(const at::Tensor& tensor, const std::vector<Unit*>& units, std::string& name) {
  for (Unit* unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      if (slot.tensor->is_same(tensor)) {
        name = slot.name;
        return unit;
      }
  return nullptr;
}

// Compares the slots of one unit with the leaves that it reaches.
void check_unit(Unit& unit, const std::vector<at::Tensor>& leaves, const std::vector<Unit*>& units) {
  std::map<std::string, bool> used;
  for (const ParameterSlot& slot : unit.parameters())
    if (slot.trainable()) used.emplace(slot.name, false);
  const std::string it = "the unit '" + std::string(unit.name()) + "' computes with ";
  for (const at::Tensor& leaf : leaves) {
    bool own = false;
    for (const ParameterSlot& slot : unit.parameters())
      if (slot.tensor->is_same(leaf)) own = used[slot.name] = true;
    if (own) continue;
    std::string name;
    if (const Unit* other = owner_of(leaf, units, name))
      found(it + "the parameter '" + name + "' of the unit '" + std::string(other->name()) +
            "', which may be freed or on another rank: give it a slot of that name (ModuleUnit::tie)");
    std::ostringstream sizes;
    sizes << leaf.sizes();
    found(it + "a tensor of " + sizes.str() +
          " that requires a gradient and is not a slot: register its module with add_child(), or the "
          "tensor with add_slot()");
  }
  for (const auto& [name, yes] : used)
    if (!yes)
      found("the unit '" + std::string(unit.name()) + "' lists '" + name +
            "' but does not compute with it: a slot must point to the tensor that the model computes with");
}

}  // namespace

std::string registers_parameters(const ModelSite& site) {
  BuiltModel model(site);
  const Batch batch = rows_of(1, 0, 1, true, rows_for(site.spec)).front();
  model.each_unit(batch, [&](Unit& unit, const Tensors& inputs, const Tensors& outputs) {
    std::vector<at::Tensor> leaves = leaves_of(outputs);
    const auto is_input = [&](const at::Tensor& leaf) {
      return std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& x) { return x.is_same(leaf); });
    };
    leaves.erase(std::remove_if(leaves.begin(), leaves.end(), is_input), leaves.end());
    check_unit(unit, leaves, model.units());
  });
  return "";
}

namespace {

constexpr double kWrong = 2e-3;

// Returns the derivative of the loss along `direction`, which has length 1.
double difference_along(BuiltModel& model, const Batch& batch, const at::Tensor& parameter,
                        const at::Tensor& direction, double step) {
  const auto move = [&](double by) {
    const at::NoGradGuard no_gradients;
    parameter.add_(direction, by);
  };
  move(step);
  const double above = model.main_loss(batch);
  move(-2 * step);
  const double below = model.main_loss(batch);
  move(step);
  return (above - below) / (2 * step);
}

// Compares finite differences with several steps. Large steps suit parts in float32, small steps curved
// losses.
void check_direction(BuiltModel& model, const Batch& batch, const Shard& shard, const at::Tensor& gradient,
                     const at::Tensor& direction, double most) {
  const double want = gradient.defined() ? (gradient * direction).sum().item<double>() : 0;
  double got = 0;
  for (const double step : {1e-4, 1e-5, 1e-3, 3e-5, 1e-2, 1e-6}) {
    got = difference_along(model, batch, shard.tensor, direction, step);
    if (std::abs(got - want) <= most) return;
  }
  std::ostringstream text;
  text << "the gradient of '" << shard.name << "' along a direction is " << want
       << ", but the loss changes by " << got;
  found(text.str());
}

// Returns the row of an embedding's padding token, which gets no gradient from the look-up, or -1.
int64_t padding_row(BuiltModel& model, const at::Tensor& tensor) {
  int64_t row = -1;
  for (Unit* unit : model.units())
    if (unit->module() != nullptr)
      unit->module()->visit("", [&](const std::string&, Module& module) {
        const auto* embedding = model::as<Embedding>(module);
        if (embedding != nullptr && embedding->weight.is_same(tensor)) row = embedding->padding();
      });
  return row;
}

// Returns a direction of length 1 that is zero in the row `padding`.
at::Tensor along(at::Tensor numbers, int64_t padding) {
  if (padding >= 0) numbers.select(0, padding).zero_();
  return numbers / numbers.norm();
}

}  // namespace

std::string has_right_gradients(const ModelSite& site) {
  BuiltModel model(site);
  model.count_auxiliary_losses();
  const Batch batch = rows_of(1, 0, 1, true, rows_for(site.spec)).front();
  const auto gradients = model.gradients(batch);
  double overall = 0;
  for (const auto& [name, gradient] : gradients)
    if (gradient.defined()) overall = std::max(overall, gradient.norm().item<double>());
  int count = 0;
  for (Shard* shard : model.shards()) {
    if (!shard->tensor.requires_grad() || shard->tensor.numel() == 0) continue;
    const at::Tensor& gradient = gradients.at(shard->name);
    const double length = gradient.defined() ? gradient.norm().item<double>() : 0;
    if (!std::isfinite(length)) found("the gradient of '" + shard->name + "' is not finite");
    const double most = kWrong * length + 1e-5 * overall;
    const int64_t padding = padding_row(model, shard->tensor);
    const at::Tensor waves =
        (at::arange(shard->tensor.numel(), at::kDouble) * 1.3 + 0.4).sin().view(shard->tensor.sizes());
    check_direction(model, batch, *shard, gradient, along(waves, padding), most);
    if (length > 1e-6 * overall)
      check_direction(model, batch, *shard, gradient, along(gradient.clone(), padding), most);
    ++count;
  }
  return std::to_string(count) + " parameters";
}

}  // namespace heddle::kits
