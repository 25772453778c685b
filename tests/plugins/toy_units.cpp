// The bodies of the toy units.
#include "plugins/toy_units.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>

#include <utility>

namespace heddle::tests {
namespace {

ToyUnit::Parameter parameter(const Toy& toy, std::string name, std::vector<int64_t> sizes,
                             Init init = {Init::Kind::normal, 0.3}) {
  const auto options = at::TensorOptions().dtype(toy.dtype);
  at::Tensor tensor;
  if (toy.meta) {
    tensor = at::empty(sizes, options.device(at::kMeta));
  } else {
    int64_t elements = 1;
    for (const int64_t size : sizes) elements *= size;
    const double start = static_cast<double>(std::hash<std::string>()(name) % 97);
    tensor =
        ((at::arange(elements, at::kFloat) * 1.7 + start).sin() * 0.3 + toy.shift).view(sizes).to(toy.dtype);
  }
  return {std::move(name), tensor.set_requires_grad(true), init, toy.foreign};
}

Tensors embed(ToyUnit& unit, Tensors, const Batch& batch) {
  return {at::embedding(unit.own[0].tensor, batch.tokens)};
}

Tensors layer(ToyUnit& unit, Tensors inputs, const Batch& batch) {
  const at::Tensor& x = inputs[0];
  const at::Tensor weight = unit.gather ? unit.gather(unit.own[0].tensor) : unit.own[0].tensor;
  at::Tensor y = at::linear(x, weight, unit.own[1].tensor).tanh();
  y = y * unit.own[2].tensor.to(y.scalar_type());
  const bool used = !batch.extra.defined() || batch.extra.item<double>() > 0;
  if (used) y = y + x * unit.own[3].tensor;
  return {x + y};
}

Tensors head(ToyUnit& unit, Tensors inputs, const Batch& batch) {
  const bool cut = batch.extra.defined() && batch.extra.item<double>() < 0;
  const at::Tensor logits = at::linear(cut ? inputs[0].detach() : inputs[0], unit.own[0].tensor);
  if (!batch.labels.defined()) return {logits};
  return {at::cross_entropy_loss(logits.to(at::kFloat).view({-1, logits.size(-1)}), batch.labels.view(-1), {},
                                 at::Reduction::Sum, Batch::kIgnore)};
}

}  // namespace

Units toy_units(const Toy& toy) {
  constexpr int64_t v = Toy::kVocabulary, w = Toy::kWidth;
  Units units;
  const auto add = [&](std::string name, std::vector<ToyUnit::Parameter> parameters, ToyUnit::Body body) {
    auto unit = std::make_unique<ToyUnit>(std::move(name), std::move(parameters), std::move(body));
    unit->events = toy.events;
    units.push_back(std::move(unit));
  };
  add("embed", {parameter(toy, "embed.weight", {v, w})}, embed);
  for (int i = 0; i < toy.layers; ++i) {
    const std::string name = "layer" + std::to_string(i);
    add(name,
        {parameter(toy, name + ".weight", {w, w}), parameter(toy, name + ".bias", {w}),
         parameter(toy, name + ".scale", {1}, {Init::Kind::ones}), parameter(toy, name + ".extra", {w})},
        layer);
  }
  if (toy.tied)
    add("head", {toy_at(units, 0).own[0]}, head);
  else
    add("head", {parameter(toy, "head.weight", {v, w})}, head);
  return units;
}

ToyUnit& toy_at(const Units& units, size_t index) {
  return static_cast<ToyUnit&>(*units[index]);
}

}  // namespace heddle::tests
