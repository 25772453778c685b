// MLP with Hugging Face's parameter names.
#include "lib/decoder/feed_forward.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "lib/decoder/norm.h"

namespace heddle::decoder {

FeedForward::FeedForward(const Mlp& form, int64_t width, const FirstValues& first,
                         const at::TensorOptions& options)
    : activation_(form.activation),
      limit_(form.limit),
      limit_before_(form.limit_before),
      situ_(form.situ),
      gate_factor_(form.gate_multiplier),
      out_(form.output_multiplier),
      up_proj_(width, form.width, bias_if(form.bias), normal(first.std), options),
      down_proj_(form.width, width, bias_if(form.bias), normal(first.residual), options) {
  if (form.gated) {
    gate_proj_ = std::make_unique<Linear>(width, form.width, bias_if(form.bias), normal(first.std), options);
    add_child("gate_proj", *gate_proj_);
  }
  add_child("up_proj", up_proj_);
  if (form.learned && !form.gated) {
    act_fn_ = form.learned->make(options);
    add_child("act_fn", *act_fn_);
  }
  add_child("down_proj", down_proj_);
}

at::Tensor FeedForward::forward(at::Tensor x, const Batch& batch) {
  return times(down_proj_.call(inside(x, batch), batch), out_);
}

at::Tensor FeedForward::call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) {
  if (!output.empty() || out_ != 1) return residual + call(std::move(x), batch);
  return down_proj_.call_onto(residual, inside(input(std::move(x), batch), batch), batch);
}

at::Tensor FeedForward::inside(const at::Tensor& x, const Batch& batch) {
  if (act_fn_) return act_fn_->call(up_proj_.call(x, batch), batch);
  if (!gate_proj_) return model::activated(activation_, up_proj_.call(x, batch));
  // The factor allocates a new gate, and a view up would keep the memory of both alive.
  const auto outputs = gate_factor_ == 1 ? model::Outputs::columns : model::Outputs::apart;
  const model::FewTensors both = model::call_each({gate_proj_.get(), &up_proj_}, x, batch, outputs);
  const at::Tensor gate = times(both[0], gate_factor_);
  if (situ_) return model::gated_by_situ(*situ_, gate, both[1]);
  return limit_ > 0 ? model::gated_within(limit_, activation_, gate, both[1], limit_before_)
                    : model::gated(activation_, gate, both[1]);
}

std::unique_ptr<MoeLayer> make_mixture(const Mixture& form, int64_t width, double init_std,
                                       const at::TensorOptions& options) {
  const FirstValues first{init_std, init_std};
  const Experts::Shape shape{form.router.experts, form.latent > 0 ? form.latent : width, form.width,
                             form.activation, form.expert_bias};
  const Experts::Names names{"gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias"};
  auto out = std::make_unique<MoeLayer>(form.router, shape, names, normal(init_std), options);
  if (form.latent > 0) out->add_latent({"fc1_latent_proj", "fc2_latent_proj"}, normal(init_std), options);
  if (form.latent_norm)
    out->add_latent_norm("latent_norm", make_norm(*form.latent_norm, form.latent, options));
  if (form.shared_width == 0) return out;
  Mlp shared{form.shared_width, form.shared_gated, form.shared_activation, false, form.shared_limit};
  shared.limit_before = form.shared_limit_before;
  shared.situ = form.shared_situ;
  out->add_shared(form.shared_gate ? "shared_expert" : "shared_experts",
                  std::make_unique<FeedForward>(shared, width, first, options));
  if (form.shared_gate) out->add_shared_gate("shared_expert_gate", normal(init_std), options);
  return out;
}

}  // namespace heddle::decoder
