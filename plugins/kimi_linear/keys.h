// Keys of the config.json of Kimi Linear, and the model description built from them.
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

  // Sizes of latent attention.
  std::optional<int64_t> q_lora_rank;
  int64_t kv_lora_rank = 512, qk_nope_head_dim = 128, qk_rope_head_dim = 64, v_head_dim = 128;
  bool attention_bias = false;

  int64_t linear_head_dim = 128, linear_num_heads = 32, linear_conv_kernel_dim = 4;
  std::optional<std::vector<std::string>> layer_types;      // linear_attention or full_attention
  std::optional<std::vector<std::string>> mlp_layer_types;  // dense or sparse
  int64_t first_k_dense_replace = 1;
  int64_t num_shared_experts = 1;
};

// Sets mlp_layer_types if it is not given.
void fill(Keys& keys);
// Describes head sizes that are too large; empty if they are valid.
std::string complaint_of_sizes(const Keys& keys);
// Describes why the keys are invalid; empty if they are valid.
std::string complaint_of_attention(const Keys& keys);
std::string complaint_of_experts(const Keys& keys);

// Reads linear_attn_config: the sizes of delta attention and the layers that use it, counted from 1.
// layer_types overrides it.
model::KeyGroup<Keys> linear_attention();
// Reads transformers' names of keys that published files name differently. The names in published files take
// precedence.
model::KeyGroup<Keys> other_names();

// Refuses keys of linear_attn_config that are not in `known`, because an unknown key might change what a
// layer computes.
void check_linear_keys(const Node& config, std::span<const std::string> known);
// Reads the sizes in linear_attn_config, and the layers in its lists if layer_types is not given.
void read_sizes(const Node& config, Keys& keys);
void read_layers(const Node& config, Keys& keys);
// Returns the entries of linear_attn_config, in alphabetical order.
std::vector<Node::Entry> write_layers(const Keys& keys);

bool is_full(const Keys& keys, int64_t layer);
bool has_experts(const Keys& keys, int64_t layer);
decoder::Latent latent_of(const Keys& keys);
decoder::Mixture mixture_of(const Keys& keys);
decoder::Model model_of(const Keys& keys);

template <class K>
void add_latent_keys(model::ModelKeys<K>& keys) {
  keys.field("q_lora_rank", &Keys::q_lora_rank,
             "Rank of the low-rank query projection. null: a single full-rank projection.", decoder::kSize)
      .field("kv_lora_rank", &Keys::kv_lora_rank, "Rank of the latent of keys and values.", decoder::kSize)
      .field("qk_nope_head_dim", &Keys::qk_nope_head_dim,
             "Width of the part of each key head that is not shared.", decoder::kSize)
      .field("qk_rope_head_dim", &Keys::qk_rope_head_dim,
             "Width of the part of a key that all heads share. It is not rotated.", decoder::kSize)
      .field("v_head_dim", &Keys::v_head_dim, "Width of a value head.", decoder::kSize);
}

template <class K>
void add_delta_keys(model::ModelKeys<K>& keys) {
  keys.field("linear_head_dim", &Keys::linear_head_dim, "Head width of delta attention.", decoder::kSize)
      .field("linear_num_heads", &Keys::linear_num_heads, "Number of heads of delta attention.",
             decoder::kSize)
      .field("linear_conv_kernel_dim", &Keys::linear_conv_kernel_dim,
             "Kernel size of the convolutions of delta attention, in tokens.", Range<int64_t>{1, 1024});
}

template <class K>
void add_mixture_keys(model::ModelKeys<K>& keys) {
  keys.field("first_k_dense_replace", &Keys::first_k_dense_replace,
             "Number of layers, from the first, without experts.", Range<int64_t>{0, model::kMostLayers})
      .field("num_shared_experts", &Keys::num_shared_experts,
             "Number of shared experts, computed as one expert of that multiple of the width.",
             Range<int64_t>{0, 65536});
  decoder::add_mixture(keys, {.experts_of_token = "num_experts_per_token",
                              .groups = "num_expert_group",
                              .scale = "routed_scaling_factor",
                              .normalised = "moe_renormalize",
                              .losses = false});
}

}  // namespace heddle::kimi_linear
