// The units of the small model, and their split.
#include "lib/testing/small_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <map>
#include <memory>
#include <utility>

#include "heddle/nn/linear.h"

namespace heddle::kits {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The columns of all ranks side by side; the gradient of this rank's columns goes back.
struct Gather : torch::autograd::Function<Gather> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& mine, Communicator* group,
                            std::vector<int64_t> widths) {
    std::vector<at::Tensor> parts;
    int64_t start = 0;
    for (int rank = 0; rank < group->size(); ++rank) {
      if (rank == group->rank()) context->saved_data["start"] = start;
      start += widths[static_cast<size_t>(rank)];
      const at::Tensor part =
          rank == group->rank()
              ? mine.contiguous()
              : at::empty({mine.size(0), mine.size(1), widths[static_cast<size_t>(rank)]}, mine.options());
      group->broadcast(part, rank)->wait();
      parts.push_back(part);
    }
    context->saved_data["width"] = mine.size(-1);
    return at::cat(parts, -1);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {
        gradients[0].narrow(-1, context->saved_data["start"].toInt(), context->saved_data["width"].toInt()),
        at::Tensor(), at::Tensor()};
  }
};

// Passes an input that all ranks share; adds their gradients in the backward.
struct Spread : torch::autograd::Function<Spread> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, Communicator* group) {
    context->saved_data["group"] = reinterpret_cast<int64_t>(group);
    return input.view_as(input);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    at::Tensor sum = gradients[0].clone(at::MemoryFormat::Contiguous);
    reinterpret_cast<Communicator*>(context->saved_data["group"].toInt())->all_reduce(sum)->wait();
    return {sum, at::Tensor()};
  }
};

struct Own {
  std::string name;
  at::Tensor tensor;  // the slot's
  at::Tensor held;    // the foreign module's handle of the same tensor
  Init init;
  bool foreign = false;
  const at::Tensor& value() const { return foreign ? held : tensor; }
};

Own own(const Shape& shape, std::string name, std::vector<int64_t> sizes, Init init, bool trains) {
  Own made{std::move(name), {}, {}, init, shape.foreign};
  if (!shape.foreign && !shape.valued) {
    made.tensor = at::empty(sizes, at::TensorOptions(at::kMeta).dtype(at::kFloat)).set_requires_grad(trains);
    return made;
  }
  auto start = static_cast<double>(shape.first_value);
  for (const char letter : made.name) start = start * 3 + letter;
  int64_t elements = 1;
  for (const int64_t size : sizes) elements *= size;
  made.tensor = ((at::arange(elements, at::kFloat) * 1.7 + start).sin() * 0.4).view(sizes).to(shape.home);
  made.tensor.set_requires_grad(trains);
  if (shape.foreign) made.held = made.tensor;
  return made;
}

class SmallUnit : public Unit {
 public:
  SmallUnit(std::string name, std::vector<Own> parameters)
      : owned(std::move(parameters)), name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  Module* module() override { return nullptr; }
  std::vector<ParameterSlot> parameters() override {
    std::vector<ParameterSlot> out;
    for (Own& one : owned) out.push_back({one.name, &one.tensor, one.init, one.foreign});
    return out;
  }

  std::vector<Own> owned;

 protected:
  const at::Tensor& value(size_t i) const { return owned[i].value(); }

 private:
  std::string name_;
};

struct First : SmallUnit {
  using SmallUnit::SmallUnit;
  Tensors forward(Tensors, const Batch& batch) override { return {at::embedding(value(0), batch.tokens)}; }
};

// x + tanh(x W^T + b) * scale, and x * extra if the batch says so.
struct Layer : SmallUnit {
  using SmallUnit::SmallUnit;
  Tensors forward(Tensors inputs, const Batch& batch) override {
    const at::Tensor x = group == nullptr ? inputs[0] : Spread::apply(inputs[0], group);
    at::Tensor y = at::tanh(model::linear(x, value(0), value(1), batch.weight_gradients));
    if (group != nullptr) y = Gather::apply(y, group, widths);
    y = y * value(2);
    if (owned.size() > 3 && batch.extra.defined() && batch.extra.sum().item<double>() > 0)
      y = y + inputs[0] * value(3);
    return {inputs[0] + y};
  }
  Communicator* group = nullptr;
  std::vector<int64_t> widths;
};

struct Last : SmallUnit {
  using SmallUnit::SmallUnit;
  Tensors forward(Tensors inputs, const Batch& batch) override {
    const at::Tensor logits = at::linear(inputs[0], value(0));
    if (!batch.labels.defined()) return {logits};
    return {at::cross_entropy_loss(logits.flatten(0, 1), batch.labels.flatten(), {}, at::Reduction::Sum,
                                   Batch::kIgnore)};
  }
};

std::unique_ptr<Unit> layer(const Shape& shape, int index, const std::vector<Own>* tied_to) {
  const int64_t w = shape.width;
  const std::string name = "layer." + std::to_string(index);
  const bool trains = !shape.one_number && !(shape.frozen && index == 1);
  const Init normal{Init::Kind::normal, shape.width > 7 ? 0.05 : 0.4}, ones{Init::Kind::ones, 0},
      zeros{Init::Kind::zeros, 0};
  std::vector<Own> parameters;
  if (tied_to != nullptr)
    parameters.push_back(tied_to->front());
  else
    parameters.push_back(
        own(shape, name + ".weight", {w, w}, normal, trains && !(shape.frozen && index == 0)));
  parameters.push_back(own(shape, name + ".bias", {w}, zeros, trains));
  parameters.push_back(own(shape, name + ".scale", {1}, ones, trains || (shape.one_number && index == 0)));
  if (shape.unused) parameters.push_back(own(shape, name + ".extra", {w}, normal, trains));
  if (shape.unused && index == 0) parameters.push_back(own(shape, name + ".never", {3}, normal, trains));
  return std::make_unique<Layer>(name, std::move(parameters));
}

}  // namespace

Units small_model(const Shape& shape) {
  if (shape.modules) return small_llama({});
  const Init normal{Init::Kind::normal, 0.4};
  const auto table = [&](const char* name) {
    return own(shape, name, {kVocabulary, shape.width}, normal, !shape.one_number);
  };
  Units units;
  units.push_back(std::make_unique<First>("first", std::vector<Own>{table("first.weight")}));
  const auto of = [&](size_t unit) { return &static_cast<SmallUnit&>(*units[unit]).owned; };
  for (int i = 0; i < shape.layers; ++i)
    units.push_back(layer(shape, i, shape.tied && i == 2 ? of(1) : nullptr));
  units.push_back(
      std::make_unique<Last>("last", std::vector<Own>{shape.tied ? of(0)->front() : table("last.weight")}));
  return units;
}

Needs LayerSplit::needs() const {
  Needs needs;
  needs.axes = {"tp"};
  return needs;
}

std::vector<Placed> LayerSplit::apply(Units& units, const DeviceMesh& mesh) {
  std::vector<Placed> placed;
  std::map<std::string, at::Tensor> parts;  // a tied parameter is cut once
  const int rank = mesh.rank("tp"), ranks = mesh.size("tp");
  for (const auto& unit : units) {
    auto* layer = dynamic_cast<Layer*>(unit.get());
    if (layer == nullptr) continue;
    const int64_t width = layer->owned[0].tensor.size(0);
    for (int i = 0; i < ranks; ++i) layer->widths.push_back((i + 1) * width / ranks - i * width / ranks);
    layer->group = &mesh.group("tp");
    const int64_t start = rank * width / ranks;
    auto slots = layer->parameters();
    for (size_t i = 0; i < 2; ++i) {
      at::Tensor& part = parts[slots[i].name];
      if (!part.defined()) {
        const bool trains = slots[i].trainable();
        part = slots[i].tensor->detach().narrow(0, start, layer->widths[rank]).clone();
        part.set_requires_grad(trains);
        placed.push_back({slots[i].name, "tp", 0, start, width});
      }
      slots[i].point(part);
    }
  }
  return placed;
}

}  // namespace heddle::kits
