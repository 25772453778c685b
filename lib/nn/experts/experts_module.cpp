// The module of the experts: slots, links and adapters.
#include <string>
#include <utility>
#include <vector>

#include "core/model/parameter.h"
#include "heddle/base/error.h"
#include "heddle/nn/experts.h"

namespace heddle {

Experts::Experts(const Shape& shape, const Names& names, const Init& init, const at::TensorOptions& options)
    : down(model::make_parameter({shape.experts, shape.hidden, shape.width}, init, options)), shape_(shape) {
  const int64_t columns = shape.activation.columns();
  std::vector<int64_t> sizes = {shape.experts, columns * shape.width};
  if (columns_apart()) sizes = {shape.experts, columns, shape.width};
  std::vector<int64_t> of_weights = sizes;
  of_weights.push_back(shape.hidden);
  gate_up = model::make_parameter(of_weights, init, options);
  add_slot(names.gate_up, gate_up, init);
  add_slot(names.down, down, init);
  if (!shape.bias) return;
  const Init zeros{Init::Kind::zeros, 0.0};
  gate_up_bias = model::make_parameter(sizes, zeros, options);
  down_bias = model::make_parameter({shape.experts, shape.hidden}, zeros, options);
  add_slot(names.gate_up_bias, gate_up_bias, zeros);
  add_slot(names.down_bias, down_bias, zeros);
}

ModuleTraits Experts::traits() const {
  ModuleTraits out{.tokens = TokenUse::each_alone, .role = Role::experts};
  if (adapters.down_a.defined())
    out.refuses = {{"etp", "adapters of experts that are split among ranks are not built yet"}};
  else if (products_)
    out.refuses = {{"etp", "the products of '" + products_of_ +
                               "' for experts that are split among ranks are not built yet"}};
  return out;
}

void Experts::multiply_by(const std::string& plugin, std::shared_ptr<const model::ExpertProducts> products) {
  if (products_) model::refuse_two_in_place("Experts::multiply_by", products_of_, plugin);
  products_of_ = plugin;
  products_ = std::move(products);
}

void Experts::adapt(const AdapterShape& shape) {
  const auto add = [&](const char* name, at::Tensor& tensor, int64_t out, int64_t in, const Init& init) {
    tensor = model::make_parameter({shape_.experts, out, in}, init, down.options());
    add_slot(name, tensor, init);
  };
  const int64_t hidden = shape_.hidden, width = shape_.width;
  const Init zeros{Init::Kind::zeros, 0.0};
  add("lora_gate_and_up_A", adapters.gate_up_a, shape.rank, hidden, shape.a(hidden));
  add("lora_gate_and_up_B", adapters.gate_up_b, shape_.activation.columns() * width, shape.rank, zeros);
  add("lora_down_A", adapters.down_a, shape.rank, width, shape.a(width));
  add("lora_down_B", adapters.down_b, hidden, shape.rank, zeros);
  adapters.scale = shape.scale;
}

at::Tensor Experts::local(const at::Tensor& x, const model::Routing& routing, const Batch& batch) {
  return model::experts(x, routing,
                        {gate_up, down, gate_up_bias, down_bias, 1.0 / parts_, adapters, products_},
                        shape_.activation, batch.weight_gradients);
}

at::Tensor Experts::run(const at::Tensor& x, const model::Routing& routing, const Batch& batch,
                        model::Meanwhile& meanwhile) {
  if (instead.empty()) return local(x, routing, batch);
  const auto own = [](const at::Tensor& tokens, const model::Routing& chosen, Experts& experts,
                      const Batch& within,
                      model::Meanwhile&) { return experts.local(tokens, chosen, within); };
  return instead.call(own, x, routing, *this, batch, meanwhile);
}

at::Tensor Experts::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "experts", "they were called without a routing", "call Experts::run");
}

}  // namespace heddle
