// The keys of config.json of Kimi Linear, and the layers that follow from them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/decoder/mixture_keys.h"

namespace heddle::kimi_linear {

struct Keys : decoder::CommonKeys, decoder::MixtureKeys {
  Keys();

  // Of latent attention.
  std::optional<int64_t> q_lora_rank;
  int64_t kv_lora_rank = 512, qk_nope_head_dim = 128, qk_rope_head_dim = 64, v_head_dim = 128;
  bool attention_bias = false;

  int64_t linear_head_dim = 128, linear_num_heads = 32, linear_conv_kernel_dim = 4;
  std::optional<std::vector<std::string>> layer_types;      // linear_attention or full_attention
  std::optional<std::vector<std::string>> mlp_layer_types;  // dense or sparse
  int64_t first_k_dense_replace = 1;
  int64_t num_shared_experts = 1;
};

// The layers with experts, where mlp_layer_types is not given.
void fill(Keys& keys);
// Sizes of heads that are too large; empty: none.
std::string complaint_of_sizes(const Keys& keys);
// What is impossible; empty: nothing.
std::string complaint_of_attention(const Keys& keys);
std::string complaint_of_experts(const Keys& keys);

// linear_attn_config: sizes of delta attention, and which layers have it, counted from 1. layer_types wins.
model::KeyGroup<Keys> linear_attention();
// transformers' names of keys that files call otherwise; the files' names win.
model::KeyGroup<Keys> other_names();

// Refuses keys of linear_attn_config that are not among `known`: each of them would change what a layer
// computes.
void check_linear_keys(const Node& config, std::span<const std::string> known);
// Of linear_attn_config: the sizes, and the layers that its lists name, where layer_types is not given.
void read_sizes(const Node& config, Keys& keys);
void read_layers(const Node& config, Keys& keys);
// The same as entries of linear_attn_config, in alphabetic order.
std::vector<Node::Entry> write_layers(const Keys& keys);

bool is_full(const Keys& keys, int64_t layer);
bool has_experts(const Keys& keys, int64_t layer);
decoder::Latent latent_of(const Keys& keys);
decoder::Mixture mixture_of(const Keys& keys);
decoder::Model model_of(const Keys& keys);

template <class K>
void add_latent_keys(model::ModelKeys<K>& keys) {
  keys.field("q_lora_rank", &Keys::q_lora_rank,
             "Width of the queries' latent; null: queries are one product.", decoder::kSize)
      .field("kv_lora_rank", &Keys::kv_lora_rank, "Width of the latent of keys and values.", decoder::kSize)
      .field("qk_nope_head_dim", &Keys::qk_nope_head_dim, "Numbers of a head of keys that are its own.",
             decoder::kSize)
      .field("qk_rope_head_dim", &Keys::qk_rope_head_dim,
             "Numbers that all heads of keys share; they have no position.", decoder::kSize)
      .field("v_head_dim", &Keys::v_head_dim, "Width of a head of values.", decoder::kSize);
}

template <class K>
void add_delta_keys(model::ModelKeys<K>& keys) {
  keys.field("linear_head_dim", &Keys::linear_head_dim, "Of delta attention: width of a head.",
             decoder::kSize)
      .field("linear_num_heads", &Keys::linear_num_heads, "Its heads.", decoder::kSize)
      .field("linear_conv_kernel_dim", &Keys::linear_conv_kernel_dim, "Tokens that its convolutions see.",
             Range<int64_t>{1, 1024});
}

template <class K>
void add_mixture_keys(model::ModelKeys<K>& keys) {
  keys.field("first_k_dense_replace", &Keys::first_k_dense_replace, "Layers before this one have no experts.",
             Range<int64_t>{0, model::kMostLayers})
      .field("num_shared_experts", &Keys::num_shared_experts,
             "Experts of every token, as one of so many times the width.", Range<int64_t>{0, 65536});
  decoder::add_mixture(keys, {.experts_of_token = "num_experts_per_token",
                              .groups = "num_expert_group",
                              .scale = "routed_scaling_factor",
                              .normalised = "moe_renormalize",
                              .losses = false});
}

}  // namespace heddle::kimi_linear
