// The decoder layer, with Hugging Face's names.
#include "decoder_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <utility>

#include "heddle/nn/swiglu.h"

namespace heddle::llama {
namespace {

Linear::Bias bias_if(bool wanted) {
  return wanted ? Linear::Bias::zeros : Linear::Bias::none;
}

Init normal(const ModelConfig& config) {
  return {Init::Kind::normal, config.initializer_range};
}

}  // namespace

Attention::Attention(const ModelConfig& config, int64_t layer, std::shared_ptr<Rotary> rotary,
                     const at::TensorOptions& options)
    : rotary_(std::move(rotary)),
      q_proj_(config.hidden_size, config.num_attention_heads * config.head_dim, bias_if(config.qkv_bias),
              normal(config), options),
      k_proj_(config.hidden_size, config.num_key_value_heads * config.head_dim, bias_if(config.qkv_bias),
              normal(config), options),
      v_proj_(config.hidden_size, config.num_key_value_heads * config.head_dim, bias_if(config.qkv_bias),
              normal(config), options),
      o_proj_(config.num_attention_heads * config.head_dim, config.hidden_size, bias_if(config.output_bias),
              normal(config), options),
      core_(config.head_dim, {.window = config.window_of(layer)},
            {config.num_attention_heads, config.num_key_value_heads}) {
  add_child("q_proj", q_proj_);
  add_child("k_proj", k_proj_);
  add_child("v_proj", v_proj_);
  add_child("o_proj", o_proj_);
  if (config.qk_norm) {
    const bool whole = config.qk_norm_of_whole;
    const int64_t q = whole ? config.num_attention_heads : 1, k = whole ? config.num_key_value_heads : 1;
    q_norm_ = std::make_unique<RmsNorm>(q * config.head_dim, config.rms_norm_eps, options);
    k_norm_ = std::make_unique<RmsNorm>(k * config.head_dim, config.rms_norm_eps, options);
    add_child("q_norm", *q_norm_);
    add_child("k_norm", *k_norm_);
  }
  add_child("core", core_);
  if (!config.sinks) return;
  sinks_ = at::empty({config.num_attention_heads}, options);
  if (!sinks_.is_meta()) sinks_.normal_(0, config.initializer_range);
  sinks_.set_requires_grad(true);
  add_slot("sinks", sinks_, normal(config));
}

at::Tensor Attention::forward(at::Tensor x, const Batch& batch) {
  return o_proj_.call(heads(x, batch), batch);
}

at::Tensor Attention::call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) {
  if (!output.empty()) return residual + call(std::move(x), batch);
  return o_proj_.call_onto(residual, heads(input(std::move(x), batch), batch), batch);
}

at::Tensor Attention::heads(const at::Tensor& x, const Batch& batch) {
  // Norms of q and k make new tensors, and v alone would keep the memory of all three alive.
  const auto outputs = q_norm_ ? model::Outputs::apart : model::Outputs::columns;
  model::FewTensors qkv = model::call_each({&q_proj_, &k_proj_, &v_proj_}, x, batch, outputs);
  if (q_norm_) {
    qkv[0] = q_norm_->call(std::move(qkv[0]), batch);
    qkv[1] = k_norm_->call(std::move(qkv[1]), batch);
  }
  model::rotate_owned(std::span<at::Tensor, 3>(qkv.data(), 3), rotary_->angles(batch));
  return core_.attend(std::move(qkv[0]), std::move(qkv[1]), std::move(qkv[2]), batch, sinks_);
}

GatedMlp::GatedMlp(const ModelConfig& config, int64_t width, const at::TensorOptions& options)
    : gate_proj_(config.hidden_size, width, bias_if(config.mlp_bias), normal(config), options),
      up_proj_(config.hidden_size, width, bias_if(config.mlp_bias), normal(config), options),
      down_proj_(width, config.hidden_size, bias_if(config.mlp_bias), normal(config), options) {
  add_child("gate_proj", gate_proj_);
  add_child("up_proj", up_proj_);
  add_child("down_proj", down_proj_);
}

at::Tensor GatedMlp::forward(at::Tensor x, const Batch& batch) {
  return down_proj_.call(gated(x, batch), batch);
}

at::Tensor GatedMlp::call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) {
  if (!output.empty()) return residual + call(std::move(x), batch);
  return down_proj_.call_onto(residual, gated(input(std::move(x), batch), batch), batch);
}

at::Tensor GatedMlp::gated(const at::Tensor& x, const Batch& batch) {
  const model::FewTensors both =
      model::call_each({&gate_proj_, &up_proj_}, x, batch, model::Outputs::columns);
  return model::swiglu(both[0], both[1]);
}

namespace {

RouterConfig router_of(const ModelConfig& config, int64_t layer, const SharedByLayers& shared) {
  const Mixture& mixture = config.mixture;
  RouterConfig router;
  router.hidden = config.hidden_size;
  router.experts = mixture.experts;
  router.rule.top_k = mixture.top_k;
  router.rule.normalise = mixture.normalise;
  router.rule.scale = mixture.scale;
  router.rule.score = mixture.score;
  router.rule.groups = mixture.groups;
  router.rule.top_groups = mixture.top_groups;
  router.rule.group_best = mixture.group_best;
  router.correction = mixture.correction;
  router.correction_rate = mixture.correction_rate;
  router.bias = mixture.router_bias;
  router.in_fp32 = mixture.router_in_fp32;
  router.in_turn = mixture.in_turn;
  router.balance = mixture.balance;
  router.z_loss = mixture.z_loss;
  router.jitter = mixture.jitter;
  for (int64_t before = 0; before < layer; ++before) router.place += mixture.sparse(before) ? 1 : 0;
  router.group = "moe";
  router.layer = layer;
  router.layers = shared.balance;
  return router;
}

std::unique_ptr<MoeLayer> make_sparse(const ModelConfig& config, int64_t layer, const SharedByLayers& shared,
                                      const at::TensorOptions& options) {
  const Mixture& mixture = config.mixture;
  const Experts::Shape shape{mixture.experts, config.hidden_size, mixture.width, mixture.activation,
                             mixture.expert_bias};
  const Experts::Names names{"gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias"};
  auto out =
      std::make_unique<MoeLayer>(router_of(config, layer, shared), shape, names, normal(config), options);
  if (mixture.shared_width == 0) return out;
  out->add_shared(mixture.shared_name(), std::make_unique<GatedMlp>(config, mixture.shared_width, options));
  if (mixture.shared_gate) out->add_shared_gate("shared_expert_gate", normal(config), options);
  return out;
}

// yarn's correction of the temperature for all of a head, squared because queries and keys have it.
double latent_scale(const ModelConfig& config) {
  const RotaryScaling& scaling = config.rope_scaling;
  const double key = static_cast<double>(config.latent.plain + config.latent.rotary);
  double factor = 1;
  if (scaling.kind == RotaryScaling::Kind::yarn && scaling.mscale_all_dim > 0 && scaling.factor > 1)
    factor += 0.1 * scaling.mscale_all_dim * std::log(scaling.factor);
  return factor * factor / std::sqrt(key);
}

LatentAttentionConfig latent_of(const ModelConfig& config) {
  const Latent& latent = config.latent;
  LatentAttentionConfig out;
  out.hidden = config.hidden_size;
  out.shape = {config.num_attention_heads, latent.plain, latent.rotary, latent.value, latent.interleaved};
  out.query_rank = latent.query_rank;
  out.rank = latent.rank;
  out.scale = latent_scale(config);
  out.bias = config.qkv_bias;
  out.init = normal(config);
  return out;
}

}  // namespace

DecoderLayer::DecoderLayer(const ModelConfig& config, int64_t layer, const SharedByLayers& shared,
                           const at::TensorOptions& options)
    : input_layernorm_(config.hidden_size, config.rms_norm_eps, options),
      post_attention_layernorm_(config.hidden_size, config.rms_norm_eps, options) {
  if (config.latent.rank > 0)
    latent_ = std::make_unique<LatentAttention>(latent_of(config), shared.rotary, options);
  else
    attention_ = std::make_unique<Attention>(config, layer, shared.rotary, options);
  add_child("input_layernorm", input_layernorm_);
  add_child("self_attn", latent_ ? static_cast<Module&>(*latent_) : *attention_);
  add_child("post_attention_layernorm", post_attention_layernorm_);
  if (config.mixture.sparse(layer))
    sparse_ = make_sparse(config, layer, shared, options);
  else
    dense_ = std::make_unique<GatedMlp>(config, config.intermediate_size, options);
  add_child("mlp", sparse_ ? static_cast<Module&>(*sparse_) : *dense_);
}

at::Tensor DecoderLayer::forward(at::Tensor x, const Batch& batch) {
  at::Tensor normal = input_layernorm_.call(x, batch);
  x = latent_ ? latent_->call_onto(x, std::move(normal), batch)
              : attention_->call_onto(x, std::move(normal), batch);
  normal = post_attention_layernorm_.call(x, batch);
  return sparse_ ? x + sparse_->call(std::move(normal), batch)
                 : dense_->call_onto(x, std::move(normal), batch);
}

}  // namespace heddle::llama
