// Small decoders that most tests train, built without a plugin: Llama, with the options of other families.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "heddle/decoder/family.h"

namespace heddle {

struct ModelConfig : decoder::CommonKeys {
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool qk_norm = false;           // a norm of each query and key head (Qwen3)
  bool qk_norm_of_whole = false;  // instead, a norm over all heads (OLMoE)
  bool sinks = false;
  int64_t sliding_window = 0;       // window size in tokens,
  std::vector<bool> slides = {};    // in these layers; empty: none
  decoder::Mixture mixture = {};    // experts, if router.experts is above 0, in layers from first_sparse on
  int64_t first_sparse = 0;         // except
  std::vector<int64_t> dense = {};  // these
  // Replaces the attention above. heads and the rotation are those of the other fields.
  std::optional<decoder::Latent> latent = {};
  std::vector<bool> shared_selections = {};  // layers that use the keys selected by the previous layer

  bool sparse(int64_t layer) const {
    return mixture.router.experts > 0 && layer >= first_sparse &&
           std::find(dense.begin(), dense.end(), layer) == dense.end();
  }
};

inline decoder::Attention attention_of(const ModelConfig& config, size_t layer) {
  using HeadNorm = decoder::Attention::HeadNorm;
  decoder::Attention out = config.attention();
  out.qkv_bias = config.qkv_bias, out.output_bias = config.output_bias;
  if (config.qk_norm) out.head_norm = config.qk_norm_of_whole ? HeadNorm::whole : HeadNorm::each_head;
  out.sinks = config.sinks;
  if (layer < config.slides.size() && config.slides[layer]) out.options.window = config.sliding_window;
  return out;
}

inline decoder::Model describe(const ModelConfig& config) {
  decoder::Model out = config.model();
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const auto at = static_cast<size_t>(i);
    decoder::Mlp mlp = config.mlp();
    mlp.bias = config.mlp_bias;
    decoder::Layer layer{attention_of(config, at), mlp, config.norm()};
    if (config.latent) {
      decoder::Latent latent = *config.latent;
      latent.heads = config.num_attention_heads;
      latent.theta = config.rotary.theta, latent.scaling = config.rotary.scaling;
      if (latent.indexer)
        latent.indexer->of_layer_before =
            at < config.shared_selections.size() && config.shared_selections[at];
      layer.mixer = latent;
    }
    if (config.sparse(i)) layer.feed_forward = config.mixture;
    out.layers.push_back(std::move(layer));
  }
  return out;
}

inline Units make_units(const ModelConfig& config, const at::TensorOptions& options) {
  return decoder::make_spec({.model = describe(config)})->make_units(options);
}

}  // namespace heddle
