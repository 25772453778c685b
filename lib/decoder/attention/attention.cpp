// Attention module with Hugging Face's parameter names.
#include "lib/decoder/attention/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/log1p.h>

#include <tuple>
#include <utility>

#include "lib/decoder/attention/output_gate.h"

namespace heddle::decoder {
namespace {

using HeadNorm = Attention::HeadNorm;

std::unique_ptr<Module> head_norm(const Attention& form, int64_t heads, const at::TensorOptions& options) {
  const int64_t together = form.head_norm == HeadNorm::whole ? heads : 1;
  return make_norm(form.norm, together * form.head_dim, options);
}

int64_t value_dim(const Attention& form) {
  return form.options.value_dim > 0 ? form.options.value_dim : form.head_dim;
}

// Returns x.clamp(-bound, bound), whose own gradient has no meta kernel in LibTorch.
at::Tensor clamped(const at::Tensor& x, double bound) {
  const at::Tensor inside = (x <= bound).to(x.scalar_type()) * (x >= -bound).to(x.scalar_type());
  return x * inside + x.detach().clamp(-bound, bound) * (1 - inside);
}

}  // namespace

const at::Tensor& QueryFactors::of(const Batch& batch, const at::Tensor& table, at::ScalarType dtype) {
  if (table_.is_same(table) && factors_.scalar_type() == dtype) return factors_;
  const at::NoGradGuard no_gradients;
  const at::Tensor turns =
      positions_of(batch).reshape({-1, 1}).to(at::kFloat) / static_cast<double>(form_.length);
  factors_ = (at::log1p(at::floor(turns)) * form_.beta + 1).to(dtype);
  table_ = table;
  return factors_;
}

SelfAttention::SelfAttention(const Attention& form, int64_t width, const FirstValues& first, Tables tables,
                             std::shared_ptr<SharedKeys> shared, uint64_t salt,
                             const at::TensorOptions& options)
    : tables_(std::move(tables)),
      gate_dim_(form.output_gate ? form.head_dim : 0),
      gate_(form.gate),
      value_scale_(form.value_scale),
      in_(form.input_multiplier),
      out_(form.output_multiplier),
      clip_(form.clip),
      shared_(std::move(shared)),
      q_proj_(width, form.heads * (form.head_dim + gate_dim_), bias_if(form.qkv_bias), normal(first.std),
              options),
      o_proj_(form.heads * value_dim(form), width, bias_if(form.output_bias), normal(first.residual),
              options),
      core_(form.head_dim, form.options, {form.heads, form.kv_heads}, salt) {
  add_child("q_proj", q_proj_);
  if (!form.keys_of_layer) add_keys(form, width, normal(first.std), options);
  add_child("o_proj", o_proj_);
  if (gate_.width != OutputGate::Width::none) {
    const int64_t each = gate_.width == OutputGate::Width::each_head ? 1 : value_dim(form);
    g_proj_ =
        std::make_unique<Linear>(width, form.heads * each, Linear::Bias::none, normal(first.std), options);
    add_child("g_proj", *g_proj_);
  }
  if (form.head_norm != HeadNorm::none) {
    q_norm_ = head_norm(form, form.heads, options);
    add_child("q_norm", *q_norm_);
  }
  add_child("core", core_);
  if (!form.sinks) return;
  sinks_ = at::empty({form.heads}, options);
  if (!sinks_.is_meta()) sinks_.normal_(0, first.std);
  sinks_.set_requires_grad(true);
  add_slot("sinks", sinks_, normal(first.std));
}

void SelfAttention::add_keys(const Attention& form, int64_t width, const Init& init,
                             const at::TensorOptions& options) {
  const auto bias = bias_if(form.qkv_bias);
  k_proj_ = std::make_unique<Linear>(width, form.kv_heads * form.head_dim, bias, init, options);
  add_child("k_proj", *k_proj_);
  if (!form.keys_are_values) {
    v_proj_ = std::make_unique<Linear>(width, form.kv_heads * value_dim(form), bias, init, options);
    add_child("v_proj", *v_proj_);
  }
  if (form.head_norm != HeadNorm::none) {
    k_norm_ = head_norm(form, form.kv_heads, options);
    add_child("k_norm", *k_norm_);
  }
  if (!form.value_norm) return;
  v_norm_ = make_norm(*form.value_norm, value_dim(form), options);
  add_child("v_norm", *v_norm_);
}

at::Tensor SelfAttention::forward(at::Tensor x, const Batch& batch) {
  return times(o_proj_.call(heads(x, batch), batch), out_);
}

at::Tensor SelfAttention::call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) {
  if (!output.empty() || out_ != 1) return residual + call(std::move(x), batch);
  return o_proj_.call_onto(residual, heads(input(std::move(x), batch), batch), batch);
}

model::FewTensors SelfAttention::products(const at::Tensor& x, const Batch& batch) {
  // The norms of q and k allocate new tensors, and a view v would keep the memory of all three alive.
  const auto outputs = q_norm_ ? model::Outputs::apart : model::Outputs::columns;
  const auto call = [&](std::initializer_list<Linear*> layers) {
    return model::call_each(layers, x, batch, outputs);
  };
  Linear *const q = &q_proj_, *const k = k_proj_.get(), *const v = v_proj_.get(), *const gate = g_proj_.get();
  if (v != nullptr) return gate ? call({q, k, v, gate}) : call({q, k, v});
  model::FewTensors out =
      k == nullptr ? (gate ? call({q, gate}) : call({q})) : (gate ? call({q, k, gate}) : call({q, k}));
  if (k == nullptr) out.insert(out.begin() + 1, shared_->keys);
  const at::Tensor values = k == nullptr ? shared_->values : out[1];
  out.insert(out.begin() + 2, values);
  return out;
}

void SelfAttention::prepare(model::FewTensors& qkv, const Batch& batch) {
  if (clip_ > 0)
    for (size_t i = 0; i < (k_proj_ ? 3u : 1u); ++i) qkv[i] = clamped(qkv[i], clip_);
  if (k_proj_) {
    if (value_scale_ != 1) qkv[2] = qkv[2] * value_scale_;
    if (v_norm_) qkv[2] = v_norm_->call(std::move(qkv[2]), batch);
  }
  if (q_norm_) qkv[0] = q_norm_->call(std::move(qkv[0]), batch);
  if (k_norm_) qkv[1] = k_norm_->call(std::move(qkv[1]), batch);
  if (!tables_.rotary) return;
  const model::RotaryAngles& angles = tables_.rotary->angles(batch);
  if (k_proj_)
    model::rotate_owned(std::span<at::Tensor, 3>(qkv.data(), 3), angles);
  else
    qkv[0] = model::rotate(qkv[0], angles);
  if (tables_.queries) qkv[0] = qkv[0] * tables_.queries->of(batch, angles.cos, qkv[0].scalar_type());
}

at::Tensor SelfAttention::heads(const at::Tensor& x, const Batch& batch) {
  model::FewTensors qkv = products(times(x, in_), batch);
  at::Tensor gate;
  if (g_proj_) gate = qkv.pop_back_val();
  if (gate_dim_ > 0) std::tie(qkv[0], gate) = split_gate(qkv[0], gate_dim_);
  prepare(qkv, batch);
  if (shared_ && shared_->for_later) shared_->keys = qkv[1], shared_->values = qkv[2];
  const at::Tensor y = core_.attend(std::move(qkv[0]), std::move(qkv[1]), std::move(qkv[2]), batch, sinks_);
  return gate.defined() ? gated_output(y, gate, gate_.function) : y;
}

}  // namespace heddle::decoder
