// Group norm times a function of a gate.
#include "lib/decoder/recurrence/gated_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>

#include <memory>
#include <utility>

#include "core/model/parameter.h"
#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

using model::accumulation_dtype;

// All are [heads, groups per head, group].
struct Groups {
  int64_t groups, group;
  Groups(const at::Tensor& weight, const GatedNormForm& form)
      : groups(form.group == 0 ? 1 : weight.numel() / form.group),
        group(form.group == 0 ? weight.numel() : form.group) {}
  at::Tensor narrow(const at::Tensor& x) const { return x.reshape({-1, groups, group}); }
  at::Tensor operator()(const at::Tensor& x) const {
    return narrow(x).to(accumulation_dtype(x.scalar_type()));
  }
  at::Tensor weights(const at::Tensor& weight) const { return weight.view({groups, group}); }
};

at::Tensor gated(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                 const GatedNormForm& form, bool rounded) {
  const Groups by(weight, form);
  const at::ScalarType wide = accumulation_dtype(x.scalar_type());
  const at::Tensor all = by(x), gates = by(gate), weights = by.weights(weight);
  const at::Tensor normal = all * (all * all).mean(-1, true).add_(form.eps).rsqrt_();
  const at::Tensor scaled =
      rounded ? (normal.to(x.scalar_type()) * weights).to(wide) : normal * weights.to(wide);
  return (scaled * (form.sigmoid ? at::sigmoid(gates) : at::silu(gates))).to(x.scalar_type()).view(x.sizes());
}

}  // namespace

at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                      const GatedNormForm& form) {
  return model::recomputed("GatedNormBackward", {x, gate}, {weight},
                           [form](std::span<const at::Tensor> in, bool backward) {
                             return gated(in[0], in[1], in[2], form, form.rounded && !backward);
                           });
}

GatedNorm::GatedNorm(int64_t width, const GatedNormForm& form, const at::TensorOptions& options)
    : form_(form) {
  const Init init{Init::Kind::ones, 0.0};
  weight = model::make_parameter({width}, init, options);
  add_slot("weight", weight, init);
}

at::Tensor GatedNorm::apply(const at::Tensor& x, const at::Tensor& gate, const Batch& batch) {
  return output(gated_norm(input(x, batch), gate, weight, form_), batch);
}

at::Tensor GatedNorm::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "model", "a gated norm takes two tensors, but call() was used",
              "use apply()");
}

}  // namespace heddle::decoder
