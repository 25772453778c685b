// The wrapped unit, and the node whose backward computes it again.
#include "heddle/parallel/recompute.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"

namespace heddle::parallel {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// The states of the generators that a unit on this device may draw from: the host's and the device's own.
std::vector<at::Tensor> generator_states(c10::Device device) {
  std::vector<at::Tensor> states;
  for (const c10::Device where : {c10::Device(at::kCPU), device}) {
    if (where.is_cpu() && !states.empty()) break;
    at::Generator generator = at::globalContext().defaultGenerator(where);
    const std::lock_guard lock(generator.mutex());
    states.push_back(generator.get_state());
  }
  return states;
}

void set_generator_states(c10::Device device, const std::vector<at::Tensor>& states) {
  for (size_t i = 0; i < states.size(); ++i) {
    at::Generator generator = at::globalContext().defaultGenerator(i == 0 ? c10::Device(at::kCPU) : device);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(states[i]);
  }
}

bool equal(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& two) {
  for (size_t i = 0; i < one.size(); ++i)
    if (one[i].nbytes() != two[i].nbytes() ||
        std::memcmp(one[i].const_data_ptr(), two[i].const_data_ptr(), one[i].nbytes()) != 0)
      return false;
  return true;
}

// The generators as they were in the forward, until the end of the scope.
class DrawAgain {
 public:
  DrawAgain(c10::Device device, const std::vector<at::Tensor>& states) : device_(device) {
    if (states.empty()) return;
    now_ = generator_states(device);
    set_generator_states(device, states);
  }
  ~DrawAgain() { set_generator_states(device_, now_); }
  DrawAgain(const DrawAgain&) = delete;
  DrawAgain& operator=(const DrawAgain&) = delete;

 private:
  c10::Device device_;
  std::vector<at::Tensor> now_;
};

struct Autocast {
  bool enabled;
  at::ScalarType dtype;
};
constexpr std::array kCasting = {at::kCPU, at::kCUDA};
using Autocasts = std::array<Autocast, kCasting.size()>;

Autocasts autocasts() {
  Autocasts now;
  for (size_t i = 0; i < now.size(); ++i)
    now[i] = {at::autocast::is_autocast_enabled(kCasting[i]), at::autocast::get_autocast_dtype(kCasting[i])};
  return now;
}

void set_autocasts(const Autocasts& states) {
  for (size_t i = 0; i < states.size(); ++i) {
    at::autocast::set_autocast_enabled(kCasting[i], states[i].enabled);
    at::autocast::set_autocast_dtype(kCasting[i], states[i].dtype);
  }
}

// Autocast as it was in the forward. Without its cache: a cast made without a graph must not be found again
// with one.
class CastAgain {
 public:
  explicit CastAgain(const Autocasts& states)
      : now_(autocasts()), cached_(at::autocast::is_autocast_cache_enabled()) {
    set_autocasts(states);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~CastAgain() {
    set_autocasts(now_);
    at::autocast::set_autocast_cache_enabled(cached_);
  }
  CastAgain(const CastAgain&) = delete;
  CastAgain& operator=(const CastAgain&) = delete;

 private:
  Autocasts now_;
  bool cached_;
};

// Edges: one for each input of the unit.
struct RecomputeNode final : torch::autograd::Node {
  Unit* unit = nullptr;
  std::vector<SavedVariable> inputs;
  Batch batch;
  c10::Device device = at::kCPU;
  std::vector<at::Tensor> drew_from;  // empty: the forward drew no random number
  Autocasts casts{};

  std::string name() const override { return "RecomputeBackward"; }

  variable_list apply(variable_list&& gradients) override {
    if (at::GradMode::is_enabled())
      throw Error(ErrorCode::internal, "parallel",
                  "a unit under activation checkpointing has no second derivative",
                  "call backward without create_graph");
    Tensors leaves;
    for (const SavedVariable& input : inputs) {
      const at::Tensor x = input.unpack();
      leaves.push_back(x.defined() ? x.detach().set_requires_grad(x.requires_grad()) : x);
    }
    run_back(run_again(leaves), std::move(gradients));
    variable_list out;
    for (at::Tensor& leaf : leaves)
      out.push_back(leaf.defined() ? std::exchange(leaf.mutable_grad(), {}) : at::Tensor());
    return out;
  }

  void release_variables() override {
    for (SavedVariable& input : inputs) input.reset_data();
    batch = {};
  }

 private:
  Tensors run_again(const Tensors& leaves) const {
    const at::AutoGradMode recording(true);
    const DrawAgain draw(device, drew_from);
    const CastAgain cast(casts);
    return unit->forward(leaves, batch);
  }

  static void run_back(Tensors outputs, variable_list&& gradients) {
    variable_list roots, of_roots;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].defined() || !outputs[i].requires_grad() || !gradients[i].defined()) continue;
      roots.push_back(std::move(outputs[i]));
      of_roots.push_back(std::move(gradients[i]));
    }
    if (!roots.empty()) torch::autograd::backward(roots, of_roots);
  }
};

c10::Device device_of(const Tensors& inputs) {
  for (const at::Tensor& input : inputs)
    if (input.defined()) return input.device();
  return at::kCPU;
}

class Recomputed final : public Unit {
 public:
  explicit Recomputed(std::unique_ptr<Unit> unit) : unit_(std::move(unit)) {}
  std::string_view name() const override { return unit_->name(); }
  std::vector<ParameterSlot> parameters() override { return unit_->parameters(); }
  Module* module() override { return unit_->module(); }

  Tensors forward(Tensors inputs, const Batch& batch) override {
    if (!at::GradMode::is_enabled()) return unit_->forward(std::move(inputs), batch);
    const std::shared_ptr<RecomputeNode> node = make_node(inputs, batch);
    std::vector<at::Tensor> states = generator_states(node->device);
    Tensors outputs = run_without_graph(std::move(inputs), *node);
    if (!equal(states, generator_states(node->device))) node->drew_from = std::move(states);
    record(outputs, node);
    return outputs;
  }

 private:
  std::shared_ptr<RecomputeNode> make_node(const Tensors& inputs, const Batch& batch) {
    std::shared_ptr<RecomputeNode> node(new RecomputeNode(), torch::autograd::deleteNode);
    torch::autograd::edge_list edges;
    for (const at::Tensor& input : inputs) {
      edges.push_back(input.defined() ? torch::autograd::impl::gradient_edge(input)
                                      : torch::autograd::Edge());
      node->inputs.emplace_back(input, false);
    }
    node->set_next_edges(std::move(edges));
    node->unit = unit_.get();
    node->batch = batch;
    node->device = device_of(inputs);
    node->casts = autocasts();
    return node;
  }

  Tensors run_without_graph(Tensors inputs, const RecomputeNode& node) {
    const at::NoGradGuard no_graph;
    const CastAgain cast(node.casts);
    return unit_->forward(std::move(inputs), node.batch);
  }

  // What comes out may be an input or a view of one, so each output becomes a tensor of its own.
  static void record(Tensors& outputs, const std::shared_ptr<RecomputeNode>& node) {
    for (at::Tensor& output : outputs) {
      const bool differentiable = output.defined() && output.is_floating_point();
      if (differentiable) output = output.variable_data();
      torch::autograd::set_history(differentiable ? output : at::Tensor(), node);
    }
  }

  std::unique_ptr<Unit> unit_;
};

}  // namespace

std::unique_ptr<Unit> recomputed(std::unique_ptr<Unit> unit) {
  for (const ParameterSlot& slot : unit->parameters())
    if (slot.trainable()) return std::make_unique<Recomputed>(std::move(unit));
  return unit;
}

void recompute(Units& units, const Unit* first, const Unit* last) {
  for (std::unique_ptr<Unit>& unit : units)
    if (unit.get() != first && unit.get() != last) unit = recomputed(std::move(unit));
}

}  // namespace heddle::parallel
