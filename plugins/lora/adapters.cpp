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

Init first_values(const Shape& shape, double in) {
  if (shape.xavier) return {Init::Kind::normal, std::sqrt(2 / (in + static_cast<double>(shape.rank)))};
  return Init::by(uniform, 1 / std::sqrt(in));
}

}  // namespace

// The scale stands between A and B: it is cheapest there, and a sum over ranks of B's outputs stays a sum.
Adapter::Adapter(Linear& adapted, const Shape& shape)
    : layer(adapted),
      down(adapted.weight.size(1), shape.rank, Linear::Bias::none,
           first_values(shape, static_cast<double>(adapted.weight.size(1))), adapted.weight.options()),
      up(shape.rank, adapted.weight.size(0), Linear::Bias::none, {Init::Kind::zeros, 0},
         adapted.weight.options()) {
  transform::add_child(layer, "lora_A", down);
  transform::add_child(layer, "lora_B", up);
}

void Adapters::add(Linear& layer, const Shape& shape) {
  adapters_.push_back(std::make_unique<Adapter>(layer, shape));
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
    if (adapter == nullptr) continue;
    out[i] = adapter->up.call_onto(out[i], adapter->down.call(x, batch) * scale_, batch);
  }
  return out;
}

Adapter* Adapters::of(const Linear* layer) const {
  for (const auto& adapter : adapters_)
    if (&adapter->layer == layer) return adapter.get();
  return nullptr;
}

}  // namespace heddle::lora
