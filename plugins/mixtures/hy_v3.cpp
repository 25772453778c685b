// Hunyuan 3 (Hy3-preview, Hy-MT2): norms of each head, a sigmoid router in fp32, a shared expert.
#include "families.h"
#include "keys.h"

namespace heddle::mixtures {
namespace {

struct HyKeys : Keys {
  HyKeys() {
    vocab_size = 120832, intermediate_size = 13312, num_hidden_layers = 80, num_attention_heads = 64;
    num_key_value_heads = 8, head_dim = 128, max_position_embeddings = 131072;
    rms_norm_eps = 1e-5, initializer_range = 0.006, rotary.theta = 11158840;
    experts = 192, experts_of_token = 8, expert_width = 1536, routed_scale = 2.826;
  }
  int64_t num_shared_experts = 1;
  std::optional<int64_t> expert_hidden_dim, first_k_dense_replace;
};

// NeMo AutoModel reads the number of dense layers, transformers reads the type of each layer.
void fill_hy(HyKeys& keys) {
  const int64_t dense = keys.first_k_dense_replace.value_or(1);
  if (!keys.mlp_layer_types)
    keys.mlp_layer_types = words_of(keys.num_hidden_layers, [&](int64_t layer) { return layer >= dense; });
}

std::string complaint_of_hy(const HyKeys& keys) {
  if (keys.expert_hidden_dim && *keys.expert_hidden_dim != keys.expert_width)
    return "expert_hidden_dim " + std::to_string(*keys.expert_hidden_dim) + " and moe_intermediate_size " +
           std::to_string(keys.expert_width) + " are two names of one width but differ: set only one of them";
  if (!keys.first_k_dense_replace) return "";
  for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer)
    if (keys.sparse(layer) != (layer >= *keys.first_k_dense_replace))
      return "mlp_layer_types and first_k_dense_replace " + std::to_string(*keys.first_k_dense_replace) +
             " disagree on the layers with experts: set only one of them";
  return "";
}

void add_fixed(model::ModelKeys<HyKeys>& keys) {
  for (const char* key : {"qk_norm", "route_norm", "moe_router_use_sigmoid", "moe_router_enable_expert_bias"})
    keys.only(key, Node::boolean(true), "false is not supported by transformers.");
  keys.only("mlp_bias", Node::boolean(false), "MLP biases are not supported.")
      .only("attention_dropout", Node::real(0), "Attention dropout is not supported.")
      .unused("output_router_logits", "No auxiliary loss is computed, as in transformers.")
      .unused("enable_moe_fp32_combine", "No effect: the sum of two values is rounded once either way.")
      .unused("enable_attention_fp32_softmax", "The softmax of attention is always computed in fp32.")
      .unused("enable_lm_head_fp32", "Set distributed.moe.lm_head_precision: float32 instead.")
      .unused("num_nextn_predict_layers", "Multi-token prediction layers are neither built nor read.");
}

model::ModelKeys<HyKeys> hy_keys() {
  auto keys = decoder::common_keys<HyKeys>();
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "hy_v3");
  keys.field("attention_bias", &Keys::attention_bias, "Whether q, k, v and o have biases.")
      .field("expert_hidden_dim", &HyKeys::expert_hidden_dim, "Alias of moe_intermediate_size.",
             decoder::kSize)
      .field("num_shared_experts", &HyKeys::num_shared_experts,
             "Number of shared experts, computed as one expert of that multiple of the width.",
             decoder::kSize)
      .field("first_k_dense_replace", &HyKeys::first_k_dense_replace,
             "Number of layers, from the first, without experts. null: derived from mlp_layer_types, else 1.",
             Range<int64_t>{0, model::kMostLayers});
  add_layer_words(keys, false);
  add_experts(keys, {.scale = "router_scaling_factor", .in_fp32 = true});
  keys.then(fill_hy).rule(complaint_of_hy);
  add_fixed(keys);
  return keys;
}

decoder::Model model_of(const HyKeys& keys) {
  decoder::Model model = keys.model();
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Layer layer{attention_of(keys, i, 0), keys.mlp(), keys.norm()};
    if (keys.sparse(i)) {
      decoder::Mixture mixture = keys.corrected_mixture();
      mixture.router.in_fp32 = true;
      mixture.shared_width = keys.num_shared_experts * keys.expert_width;
      layer.feed_forward = mixture;
    }
    model.layers.push_back(std::move(layer));
  }
  return model;
}

// Layers beyond the last are multi-token prediction layers.
decoder::Files files(const HyKeys& keys) {
  decoder::Files files;
  files.experts({.router = "router.gate", .correction = "expert_bias"})
      .renamed("mlp.shared_experts", "mlp.shared_mlp");
  ignore_further_layers(keys, files);
  return files;
}

const decoder::Description<HyKeys>& hy_v3() {
  static const decoder::Description<HyKeys> kHy = {"hy_v3", "HYV3ForCausalLM", hy_keys(), model_of, {},
                                                   files};
  return kHy;
}

}  // namespace

void offer_hy_v3(Offer& plugin) {
  plugin.model<decoder::Family<hy_v3>>("hy_v3", hy_v3().keys);
}

}  // namespace heddle::mixtures
