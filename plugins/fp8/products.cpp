// One node for the layers of one input. It keeps the input and the weights as they came, and rounds them
// again.
#include "products.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/max.h>
#include <ATen/ops/sum.h>

#include <array>
#include <utility>

#include "heddle/model/autocast.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/region.h"
#include "heddle/nn/device_ops.h"
#include "heddle/ops/compute_log.h"

namespace heddle::fp8 {
namespace {

using model::Autocast;
using model::Gradients;

constexpr double kSmallest = 1e-12;
constexpr int64_t kSizes = 16;  // of the hardware's products

struct Rounded {
  at::Tensor value;    // in fp8
  at::Tensor inverse;  // float32, one number: of the scale
  at::Tensor across;   // the value transposed, side by side; undefined: not made
};

// Which of the two layouts the products need.
enum class Layouts { rows, both };

Rounded rounded(const at::Tensor& x, at::ScalarType type, Layouts layouts) {
  if (const auto kernel = model::device_kernel(&model::DeviceOps::round_fp8, x); kernel != nullptr) {
    const at::TensorOptions options = x.options().dtype(type);
    Rounded out{at::empty(x.sizes(), options), at::empty({}, x.options().dtype(at::kFloat)), {}};
    if (layouts == Layouts::both) out.across = at::empty({x.size(1), x.size(0)}, options);
    if (kernel(x, out.value, out.across, out.inverse)) return out;
  }
  const double most = type == at::kFloat8_e5m2 ? 57344 : 448;
  const at::Tensor scale = most / at::max(at::abs(x)).to(at::kDouble).clamp_min(kSmallest);
  const at::Tensor narrow = scale.to(at::kFloat);
  return {at::clamp(x.to(at::kFloat) * narrow, -most, most).to(type), narrow.reciprocal(), {}};
}

// The inner dim of a product must be a multiple of 16: zeros change nothing.
at::Tensor padded(const at::Tensor& x, int64_t dim) {
  const int64_t missing = (kSizes - x.size(dim) % kSizes) % kSizes;
  if (missing == 0) return x;
  return at::constant_pad_nd(x.view(at::kByte),
                             dim == 0 ? at::IntArrayRef{0, 0, 0, missing} : at::IntArrayRef{0, missing}, 0)
      .view(x.scalar_type());
}

// LibTorch has no _scaled_mm for meta.
at::Tensor product_on_meta(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype) {
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options().dtype(dtype));
  record_operator("aten::_scaled_mm",
                  {2 * static_cast<double>(a.numel()) * static_cast<double>(b.size(1)),
                   static_cast<double>(a.nbytes() + b.nbytes()), static_cast<double>(out.nbytes())},
                  /*is_product=*/true);
  return out;
}

// a [m, k] times b [k, n].
at::Tensor product(const Rounded& a, const Rounded& b, at::ScalarType dtype, const How& how) {
  if (how.emulate) {
    const auto whole = [](const Rounded& x) { return x.value.to(at::kFloat) * x.inverse; };
    return at::matmul(whole(a), whole(b)).to(dtype);
  }
  const at::Tensor rows = padded(a.value.contiguous(), 1);
  const at::Tensor columns = padded((b.across.defined() ? b.across : b.value.t()).contiguous(), 1).t();
  if (rows.is_meta()) return product_on_meta(rows, columns, dtype);
  return at::_scaled_mm(rows, columns, a.inverse, b.inverse, {}, {}, dtype);
}

Rounded transposed(const Rounded& x) {
  return {x.across.defined() ? x.across : x.value.t(), x.inverse, x.value};
}

at::Tensor used(Autocast* autocast, const at::Tensor& weight) {
  return autocast == nullptr ? weight : autocast->weight(weight);
}

// Edges: x, then weight and bias of each layer.
struct Fp8Node final : model::LayerNode {
  Fp8Node() : LayerNode("Fp8LinearBackward") {}
  model::Saved x;
  c10::SmallVector<model::Saved, 3> weights;
  c10::SmallVector<at::ScalarType, 3> dtypes;
  std::vector<int64_t> shape;
  at::ScalarType x_dtype{};
  Autocast* autocast = nullptr;
  How how;

  Gradients backward(Gradients&& gradients) override {
    Gradients out(num_outputs());
    const at::Tensor in = x.unpack();
    at::Tensor dx;
    Rounded x_rounded;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const at::Tensor dy = gradients[i].reshape({-1, gradients[i].size(-1)});
      if (task_should_compute_output(2 + 2 * i)) out[2 + 2 * i] = dy.sum(0).to(dtypes[i]);
      if (how.products) {
        as_one_expert(i, dy, in, out[1 + 2 * i], dx);
        continue;
      }
      const Rounded dy_rounded = rounded(dy.contiguous(), at::kFloat8_e5m2, Layouts::both);
      if (task_should_compute_output(1 + 2 * i)) {
        if (!x_rounded.value.defined()) x_rounded = rounded(in, at::kFloat8_e4m3fn, Layouts::both);
        out[1 + 2 * i] = product(transposed(dy_rounded), x_rounded, in.scalar_type(), how).to(dtypes[i]);
      }
      if (!task_should_compute_output(0)) continue;
      const at::Tensor weight = used(autocast, weights[i].unpack());
      const at::Tensor part =
          product(dy_rounded, rounded(weight, at::kFloat8_e4m3fn, Layouts::both), in.scalar_type(), how);
      dx = dx.defined() ? dx.add_(part) : part;
    }
    if (dx.defined()) out[0] = dx.view(shape).to(x_dtype);
    return out;
  }
  void release_variables() override {
    x.reset();
    for (model::Saved& weight : weights) weight.reset();
  }

 private:
  void as_one_expert(size_t layer, const at::Tensor& dy, const at::Tensor& in, at::Tensor& of_weight,
                     at::Tensor& dx) {
    const std::array<int64_t, 2> all = {0, dy.size(0)};
    if (task_should_compute_output(1 + 2 * layer))
      of_weight = how.products->weight_gradient(dy, in, all)[0].to(dtypes[layer]);
    if (!task_should_compute_output(0)) return;
    const at::Tensor weight = used(autocast, weights[layer].unpack()).unsqueeze(0);
    const at::Tensor part = how.products->backward(dy, weight, all);
    dx = dx.defined() ? dx.add_(part) : part;
  }
};

std::shared_ptr<Fp8Node> node_of(std::span<Linear* const> layers, const at::Tensor& x) {
  std::vector<at::Tensor> inputs{x};
  for (const Linear* layer : layers) inputs.insert(inputs.end(), {layer->weight, layer->bias});
  if (!torch::autograd::compute_requires_grad(at::TensorList(inputs))) return nullptr;
  auto node = model::make_node<Fp8Node>(at::TensorList(inputs));
  for (const Linear* layer : layers) {
    node->weights.emplace_back().save_weight(layer->weight);
    node->dtypes.push_back(layer->weight.scalar_type());
  }
  node->shape = x.sizes().vec();
  node->x_dtype = x.scalar_type();
  return node;
}

// rows [tokens, in]; `of_rows`, their fp8, is made once for all layers.
at::Tensor forward_of(const Linear& layer, const at::Tensor& rows, Rounded& of_rows, Autocast* autocast,
                      const How& how) {
  const at::Tensor weight = used(autocast, layer.weight);
  at::Tensor y;
  if (how.products) {
    y = how.products->forward(rows, weight.unsqueeze(0), std::array<int64_t, 2>{0, rows.size(0)});
  } else {
    if (!of_rows.value.defined()) of_rows = rounded(rows.contiguous(), at::kFloat8_e4m3fn, Layouts::rows);
    y = product(of_rows, transposed(rounded(weight, at::kFloat8_e4m3fn, Layouts::rows)), rows.scalar_type(),
                how);
  }
  return layer.bias.defined() ? y.add_(used(autocast, layer.bias)) : y;
}

at::Tensor of_shape(const at::Tensor& y, const at::Tensor& x) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = y.size(-1);
  return y.view(shape);
}

}  // namespace

model::FewTensors linears(std::span<Linear* const> layers, const at::Tensor& x, const How& how) {
  Autocast* const autocast = Autocast::active();
  const std::shared_ptr<Fp8Node> node = node_of(layers, x);
  model::FewTensors out;
  {
    const model::BelowAutograd below;
    const at::Tensor rows = (autocast == nullptr ? x : autocast->value(x)).reshape({-1, x.size(-1)});
    if (node) {
      node->x.save(rows);
      node->autocast = autocast;
      node->how = how;
    }
    Rounded of_x;
    for (const Linear* layer : layers)
      out.push_back(
          of_shape(model::once(model::Operator::product,
                               [&] {
                                 if (rows.is_meta())
                                   return at::empty({rows.size(0), layer->weight.size(0)}, rows.options());
                                 return forward_of(*layer, rows, of_x, autocast, how);
                               }),
                   x));
  }
  if (node)
    for (const at::Tensor& y : out) torch::autograd::set_history(y, node);
  return out;
}

}  // namespace heddle::fp8
