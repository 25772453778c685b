// Adapters of linear layers: creation, forward pass and scaling.
#include "adapters.h"

#include <ATen/TensorOperators.h>

#include <cmath>
#include <utility>

#include "heddle/model/autocast.h"
#include "heddle/plugin/transform.h"

namespace heddle::lora {
namespace {

constexpr int kOrder = 100;  // inside of links that change a layer's input
constexpr double kRoot2 = 1.4142135623730951;

// Converts a normal draw to a uniform one within `std`.
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

at::TensorOptions options_of(const Linear& layer, const Shape& shape) {
  const at::TensorOptions options = layer.weight.options().requires_grad(false);
  return shape.dtype ? options.dtype(*shape.dtype) : options;
}

// Does not cast under autocast, where linear layers cast their inputs themselves.
at::Tensor cast_to(const at::Tensor& x, at::ScalarType dtype) {
  return model::Autocast::active() != nullptr || x.scalar_type() == dtype ? x : x.to(dtype);
}

at::Tensor without_bias(const at::Tensor& y, const Linear& layer) {
  return layer.bias.defined() ? y - layer.bias.to(y.scalar_type()) : y;
}

at::Tensor with_bias(const at::Tensor& y, const Linear& layer) {
  return layer.bias.defined() ? y + layer.bias.to(y.scalar_type()) : y;
}

}  // namespace

Inner::Inner(Linear& first, const std::string& path, const Shape& shape)
    : down(first.weight.size(1), shape.rank, Linear::Bias::none,
           first_values(shape, static_cast<double>(first.weight.size(1))), options_of(first, shape)) {
  transform::add_child(first, "lora_A", down);
  if (shape.dropout > 0 && shape.before)
    transform::add_child(first, "lora_dropout", dropout.emplace(shape.dropout, path + ".lora_dropout"));
}

Adapter::Adapter(Linear& adapted, const std::string& path, const Shape& shape, std::shared_ptr<Inner> from)
    : layer(adapted),
      inner(std::move(from)),
      up(shape.rank, adapted.weight.size(0), Linear::Bias::none, {Init::Kind::zeros, 0},
         options_of(adapted, shape)) {
  transform::add_child(layer, "lora_B", up);
  if (shape.dropout > 0 && !shape.before)
    transform::add_child(layer, "lora_dropout", dropout.emplace(shape.dropout, path + ".lora_dropout"));
  if (shape.dora)
    transform::add_child(layer, "lora_magnitude_vector",
                         magnitude.emplace(adapted.weight, options_of(adapted, shape)));
}

void Adapters::add(Linear& layer, const std::string& path) {
  adapters_.push_back(
      std::make_unique<Adapter>(layer, path, shape_, std::make_shared<Inner>(layer, path, shape_)));
}

void Adapters::add_part(Linear& layer, const std::string& path) {
  adapters_.push_back(std::make_unique<Adapter>(layer, path, shape_, adapters_.back()->inner));
}

void Adapters::link(std::shared_ptr<const Adapters> adapters) {
  const auto link = Linear::Instead::around(
      "lora", kOrder,
      [adapters](std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch, const Next& next) {
        return adapters->outputs(layers, x, batch, next);
      });
  for (const auto& adapter : adapters->adapters_) adapter->layer.instead.add(link);
}

// Layers that share A are adjacent, so A x is computed once for all layers of one call.
model::FewTensors Adapters::outputs(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                                    const Next& next) const {
  model::FewTensors out = next(layers, x, batch);
  const Inner* of_entered = nullptr;
  Entered in;
  for (size_t i = 0; i < layers.size(); ++i) {
    Adapter* adapter = of(layers[i]);
    if (adapter == nullptr) continue;
    if (adapter->inner.get() != of_entered) in = enter(*adapter->inner, x, batch);
    of_entered = adapter->inner.get();
    out[i] = adapter->magnitude ? scaled(*adapter, out[i], in, batch, next)
                                : added(*adapter, out[i], in.low, batch);
  }
  return out;
}

// The scale applies between A and B. It is cheapest there, and the sum of B's outputs over ranks remains a
// sum.
Adapters::Entered Adapters::enter(Inner& inner, const at::Tensor& x, const Batch& batch) const {
  Entered in{inner.dropout && batch.draws.defined() ? inner.dropout->call(x, batch) : x, {}};
  in.low = inner.down.call(cast_to(in.x, inner.down.weight.scalar_type()), batch) * shape_.scale;
  return in;
}

at::Tensor Adapters::plus_up(Adapter& adapter, const at::Tensor& onto, const at::Tensor& low,
                             const Batch& batch) const {
  if (adapter.up.weight.scalar_type() == onto.scalar_type() || model::Autocast::active() != nullptr)
    return adapter.up.call_onto(onto, low, batch);
  return onto + adapter.up.call(low, batch).to(onto.scalar_type());
}

at::Tensor Adapters::added(Adapter& adapter, const at::Tensor& onto, const at::Tensor& low,
                           const Batch& batch) const {
  if (!adapter.dropout || !batch.draws.defined()) return plus_up(adapter, onto, low, batch);
  return onto + adapter.dropout->call(adapter.up.call(low, batch), batch).to(onto.scalar_type());
}

// The bias is not scaled. With input dropout, the scaling applies to the dropped input, and the layer's own
// output has no dropout.
at::Tensor Adapters::scaled(Adapter& adapter, const at::Tensor& base, const Entered& in, const Batch& batch,
                            const Next& next) const {
  Linear& layer = adapter.layer;
  const at::Tensor lengths =
      row_lengths(layer.weight, adapter.inner->down.weight, adapter.up.weight, shape_.scale);
  if (!adapter.inner->dropout || !batch.draws.defined()) {
    const at::Tensor sum = added(adapter, without_bias(base, layer), in.low, batch);
    return with_bias(scaled_rows(sum, adapter.magnitude->weight, lengths), layer);
  }
  Linear* const alone = &layer;
  const at::Tensor own = without_bias(next({&alone, 1}, in.x, batch)[0], layer);
  const at::Tensor sum = plus_up(adapter, own, in.low, batch);
  return base - own + scaled_rows(sum, adapter.magnitude->weight, lengths);
}

Adapter* Adapters::of(const Linear* layer) const {
  for (const auto& adapter : adapters_)
    if (&adapter->layer == layer) return adapter.get();
  return nullptr;
}

}  // namespace heddle::lora
