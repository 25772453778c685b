// Keys of Kimi K3's text model, and the description of its layers.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "heddle/decoder/description.h"
#include "kimi_k3.h"

namespace heddle::kimi_linear {
namespace {

model::Situ situ_of(const K3Keys& keys) {
  const double beta = keys.activation_situ_beta.value_or(0);
  return {beta == 0 ? 1.0 : beta, keys.activation_situ_linear_beta.value_or(0)};  // as in NeMo AutoModel
}

decoder::Latent gated_latent_of(const K3Keys& keys) {
  decoder::Latent out = latent_of(keys);
  out.output_gate = keys.mla_use_output_gate;
  return out;
}

decoder::Mixture latent_mixture_of(const K3Keys& keys) {
  decoder::Mixture out = mixture_of(keys);
  if (keys.moe_router_activation_func == "softmax") out.router.rule.score = model::RouterRule::Score::softmax;
  out.router.rule.normalise = keys.normalised && keys.experts_of_token > 1;
  out.activation.kind = model::ExpertActivation::Kind::situ;
  out.activation.situ = situ_of(keys);
  out.shared_situ = situ_of(keys);
  out.latent = keys.routed_expert_hidden_size;
  if (keys.latent_moe_use_norm) out.latent_norm = keys.norm();
  return out;
}

// Files pad A_log with zeros to a multiple of 128.
decoder::ChannelDelta delta_of(const K3Keys& keys) {
  decoder::ChannelDelta out{keys.linear_num_heads, keys.linear_head_dim, keys.linear_conv_kernel_dim,
                            keys.rms_norm_eps};
  out.whole_gate = keys.use_full_rank_gate;
  out.lowest = keys.gate_lower_bound;
  out.rates = (keys.linear_num_heads + 127) / 128 * 128;
  return out;
}

// Returns full attention in every fourth layer and in the last.
std::vector<std::string> default_layers(int64_t count) {
  std::vector<std::string> out;
  for (int64_t layer = 1; layer <= count; ++layer)
    out.emplace_back(layer % 4 == 0 || layer == count ? decoder::kFullAttention : "linear_attention");
  return out;
}

void read_bound(const Node& config, K3Keys& keys) {
  keys.gate_lower_bound = model::real_or(config, "gate_lower_bound", 0);
  const Node* bound = model::given(config, "gate_lower_bound");
  if (bound != nullptr && keys.gate_lower_bound >= 0)
    model::refuse(*bound, "gate_lower_bound: expected a number below 0, got " + bound->written(),
                  "set it below 0, or remove it for decays without a bound");
}

void read_attention(const Node& given, K3Keys& keys) {
  keys.layer_types.reset();
  const Node* config = model::given(given, "linear_attn_config");
  if (config == nullptr) {
    keys.layer_types = default_layers(keys.num_hidden_layers);
    return;
  }
  if (!config->is_map())
    model::refuse(*config, "linear_attn_config: expected a map, got " + config->written());
  static const std::vector<std::string> kKnown = {
      "head_dim",           "num_heads",        "full_attn_layers",      "kda_layers",
      "use_full_rank_gate", "gate_lower_bound", "short_conv_kernel_size"};
  check_linear_keys(*config, kKnown);
  read_sizes(*config, keys);
  read_layers(*config, keys);
  if (!keys.layer_types)
    model::refuse(*config, "linear_attn_config has neither full_attn_layers nor kda_layers",
                  "set both lists, or remove linear_attn_config");
  keys.use_full_rank_gate = model::boolean_or(*config, "use_full_rank_gate", false);
  read_bound(*config, keys);
}

// Refuses null for keys without which NeMo AutoModel builds no model. null shared experts mean 0.
void read_nulls(const Node& given, K3Keys& keys) {
  constexpr std::array<const char*, 7> kNeeded = {
      "num_experts",  "moe_intermediate_size", "routed_expert_hidden_size",
      "kv_lora_rank", "qk_nope_head_dim",      "qk_rope_head_dim",
      "v_head_dim"};
  for (const char* key : kNeeded)
    if (const Node* node = given.find(key); node != nullptr && node->is_null())
      model::refuse(*node, std::string(key) + ": null is not built, as in NeMo AutoModel", "set a size");
  const Node* shared = given.find("num_shared_experts");
  if (shared != nullptr && shared->is_null()) keys.num_shared_experts = 0;
}

// The default number of experts per token is at most the number of experts.
void check_experts(const Node& given, K3Keys& keys) {
  if (model::given(given, "num_experts_per_token") == nullptr)
    keys.experts_of_token = std::min(keys.experts_of_token, keys.experts);
  if (const std::string complaint = complaint_of_experts(keys); !complaint.empty())
    model::refuse(given, complaint);
}

std::vector<Node::Entry> write_attention(const K3Keys& keys) {
  std::vector<Node::Entry> entries = write_layers(keys);
  if (keys.gate_lower_bound < 0)
    entries.insert(entries.begin() + 1, {"gate_lower_bound", Node::real(keys.gate_lower_bound)});
  entries.emplace_back("use_full_rank_gate", Node::boolean(keys.use_full_rank_gate));
  return {{"linear_attn_config", Node::map(std::move(entries))}};
}

}  // namespace

K3Keys::K3Keys() {
  hidden_size = 7168, intermediate_size = 18432, num_hidden_layers = 93, num_attention_heads = 56;
  pad_token_id = 0, q_lora_rank = 1536, linear_num_heads = 96;
  experts = 896, experts_of_token = 16, num_shared_experts = 2, expert_width = 3072;
  routed_scale = 1.0;
}

void fill_k3(K3Keys& keys) {
  keys.head_dim = keys.qk_nope_head_dim + keys.qk_rope_head_dim;
  keys.mlp_layer_types.emplace();
  for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer) {
    const bool sparse = layer >= keys.first_k_dense_replace && layer % keys.moe_layer_freq == 0;
    keys.mlp_layer_types->emplace_back(sparse ? "sparse" : "dense");
  }
}

std::string complaint_of_k3(const K3Keys& keys) {
  if (keys.tie_word_embeddings) return "tie_word_embeddings is true, but Kimi K3 has a separate head";
  if (keys.activation_situ_beta.value_or(0) < 0) return "activation_situ_beta must be at least 0";
  if (keys.activation_situ_linear_beta.value_or(1) <= 0)
    return "activation_situ_linear_beta must be above 0, or null for no bound";
  return complaint_of_sizes(keys);
}

model::KeyGroup<K3Keys> k3_attention() {
  model::KeyGroup<K3Keys> out;
  out.table = {{"linear_attn_config", "map or null", "null", "",
                "Settings of delta attention. head_dim, num_heads and short_conv_kernel_size override the "
                "keys linear_*. kda_layers and full_attn_layers list all layers, counted from 1. "
                "use_full_rank_gate (default false) makes the output gate a single projection. "
                "gate_lower_bound (default none) bounds the logarithms of decays. If linear_attn_config is "
                "null: a full-rank gate, the bound -5, and full attention in layers 4, 8, ... and the last.",
                ""}};
  out.read = [](const Node& given, K3Keys& keys) {
    read_attention(given, keys);
    read_nulls(given, keys);
    check_experts(given, keys);
  };
  out.write = write_attention;
  return out;
}

decoder::Model model_of_k3(const K3Keys& keys) {
  decoder::Model model = keys.model();
  if (keys.attn_res_block_size) model.block_residuals = {*keys.attn_res_block_size, keys.rms_norm_eps};
  const auto delta = decoder::channel_delta(delta_of(keys));
  decoder::Mlp mlp = keys.mlp();
  mlp.situ = situ_of(keys);
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Layer layer;
    layer.norm = keys.norm();
    if (is_full(keys, i))
      layer.mixer = gated_latent_of(keys);
    else
      layer.mixer = delta;
    if (has_experts(keys, i))
      layer.feed_forward = latent_mixture_of(keys);
    else
      layer.feed_forward = mlp;
    model.layers.push_back(std::move(layer));
  }
  return model;
}

}  // namespace heddle::kimi_linear
