// The link of adapted layers.
#include "adapters.h"

#include <ATen/TensorOperators.h>

#include <cmath>
#include <utility>

#include "heddle/plugin/transform.h"

namespace heddle::lora {
namespace {

constexpr int kOrder = 100;  // inside of links that change what a layer is given
constexpr double kRoot2 = 1.4142135623730951;

// A normal draw as a uniform one within `std`.
double uniform(const InitElement& element) {
  return element.std * std::erf(element.normal / kRoot2);
}

}  // namespace

Init uniform_within(double bound) {
  return Init::by(uniform, bound);
}

namespace {

Init first_values(const Shape& shape, double in) {
  if (shape.xavier) return {Init::Kind::normal, std::sqrt(2 / (in + static_cast<double>(shape.rank)))};
  return uniform_within(1 / std::sqrt(in));
}

}  // namespace

// The scale stands between A and B: it is cheapest there, and a sum over ranks of B's outputs stays a sum.
Adapter::Adapter(Linear& adapted, const std::string& path, const Shape& shape)
    : layer(adapted),
      down(adapted.weight.size(1), shape.rank, Linear::Bias::none,
           first_values(shape, static_cast<double>(adapted.weight.size(1))), adapted.weight.options()),
      up(shape.rank, adapted.weight.size(0), Linear::Bias::none, {Init::Kind::zeros, 0},
         adapted.weight.options()) {
  transform::add_child(layer, "lora_A", down);
  transform::add_child(layer, "lora_B", up);
  if (shape.dropout > 0)
    transform::add_child(layer, "lora_dropout", dropout.emplace(shape.dropout, path + ".lora_dropout"));
}

void Adapters::add(Linear& layer, const std::string& path) {
  adapters_.push_back(std::make_unique<Adapter>(layer, path, shape_));
}

void Adapters::link(std::shared_ptr<const Adapters> adapters) {
  const auto link = Linear::Instead::around(
      "lora", kOrder,
      [adapters](std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch, const Next& next) {
        return adapters->outputs(layers, x, batch, next);
      });
  for (const auto& adapter : adapters->adapters_) adapter->layer.instead.add(link);
}

model::FewTensors Adapters::outputs(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                                    const Next& next) const {
  model::FewTensors out = next(layers, x, batch);
  for (size_t i = 0; i < layers.size(); ++i) {
    Adapter* adapter = of(layers[i]);
    if (adapter != nullptr) out[i] = added(*adapter, out[i], x, batch);
  }
  return out;
}

at::Tensor Adapters::added(Adapter& adapter, const at::Tensor& onto, const at::Tensor& x,
                           const Batch& batch) const {
  const bool drops = adapter.dropout && batch.draws.defined();
  const at::Tensor in = drops && shape_.before ? adapter.dropout->call(x, batch) : x;
  const at::Tensor scaled = adapter.down.call(in, batch) * shape_.scale;
  if (!drops || shape_.before) return adapter.up.call_onto(onto, scaled, batch);
  return onto + adapter.dropout->call(adapter.up.call(scaled, batch), batch);
}

Adapter* Adapters::of(const Linear* layer) const {
  for (const auto& adapter : adapters_)
    if (&adapter->layer == layer) return adapter.get();
  return nullptr;
}

}  // namespace heddle::lora
