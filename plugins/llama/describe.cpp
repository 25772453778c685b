// Conversion of a configuration to layer descriptions.
#include "describe.h"

#include <cmath>
#include <utility>

#include "config/model_type.h"
#include "heddle/decoder/family.h"

namespace heddle::llama {
namespace {

// yarn's temperature correction for a whole head. It is squared because queries and keys both have it.
double latent_scale(const ModelConfig& config) {
  const RotaryScaling& scaling = config.rope_scaling;
  const double key = static_cast<double>(config.latent.plain + config.latent.rotary);
  double factor = 1;
  if (scaling.kind == RotaryScaling::Kind::yarn && scaling.mscale_all_dim > 0 && scaling.factor > 1)
    factor += 0.1 * scaling.mscale_all_dim * std::log(scaling.factor);
  return factor * factor / std::sqrt(key);
}

decoder::Latent latent_of(const ModelConfig& config, int64_t layer) {
  const Latent& latent = config.latent;
  const Indexer& indexer = latent.indexer;
  decoder::Latent out = {.heads = config.num_attention_heads,
                         .rank = latent.rank,
                         .query_rank = latent.query_rank,
                         .plain = latent.plain,
                         .rotary = latent.rotary,
                         .value = latent.value,
                         .scale = latent_scale(config),
                         .bias = config.qkv_bias,
                         .interleaved = latent.interleaved,
                         .theta = config.rope_theta,
                         .scaling = config.rope_scaling};
  if (indexer.top_k > 0)
    out.indexer = {.heads = indexer.heads,
                   .head_dim = indexer.head_dim,
                   .top_k = indexer.top_k,
                   .interleaved = indexer.interleaved,
                   .of_layer_before = indexer.shares(layer)};
  return out;
}

decoder::Attention attention_of(const ModelConfig& config, int64_t layer) {
  using HeadNorm = decoder::Attention::HeadNorm;
  decoder::Attention out;
  out.heads = config.num_attention_heads;
  out.kv_heads = config.num_key_value_heads;
  out.head_dim = config.head_dim;
  out.options.window = config.window_of(layer);
  out.rotation = {config.rotary_dim(), config.rope_theta, config.rope_scaling};
  if (config.qk_norm) out.head_norm = config.qk_norm_of_whole ? HeadNorm::whole : HeadNorm::each_head;
  out.norm.eps = config.rms_norm_eps;
  out.qkv_bias = config.qkv_bias;
  out.output_bias = config.output_bias;
  out.sinks = config.sinks;
  return out;
}

decoder::Mixture mixture_of(const Mixture& mixture) {
  decoder::Mixture out;
  RouterConfig& router = out.router;
  router.experts = mixture.experts;
  router.rule = {mixture.score,      mixture.top_k,     mixture.groups, mixture.top_groups,
                 mixture.group_best, mixture.normalise, mixture.scale};
  router.correction = mixture.correction;
  router.correction_rate = mixture.correction_rate;
  router.bias = mixture.router_bias;
  router.in_fp32 = mixture.router_in_fp32;
  router.in_turn = mixture.in_turn;
  router.balance = mixture.balance;
  router.z_loss = mixture.z_loss;
  router.jitter = mixture.jitter;
  out.width = mixture.width;
  out.activation = mixture.activation;
  out.expert_bias = mixture.expert_bias;
  out.shared_width = mixture.shared_width;
  out.shared_gate = mixture.shared_gate;
  return out;
}

}  // namespace

decoder::Model describe(const ModelConfig& config) {
  decoder::Model out;
  out.vocabulary = config.vocab_size;
  out.width = config.hidden_size;
  out.last_norm.eps = config.rms_norm_eps;
  out.tied = config.tie_word_embeddings;
  out.padding = config.pad_token_id;
  out.init_std = config.initializer_range;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    decoder::Layer one;
    one.norm.eps = config.rms_norm_eps;
    if (config.latent.rank > 0)
      one.mixer = latent_of(config, layer);
    else
      one.mixer = attention_of(config, layer);
    if (config.mixture.sparse(layer))
      one.feed_forward = mixture_of(config.mixture);
    else
      one.feed_forward = decoder::Mlp{.width = config.intermediate_size, .bias = config.mlp_bias};
    out.layers.push_back(std::move(one));
  }
  return out;
}

decoder::Files files_of(const ModelConfig& config) {
  return type_of(config.model_type).files;
}

Units make_units(const ModelConfig& config, const at::TensorOptions& options) {
  return decoder::make_spec({.model = describe(config)})->make_units(options);
}

}  // namespace heddle::llama
