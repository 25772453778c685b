// Keys of the config.json of DeepSeek-V4, and the model description built from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/decoder/mixture_keys.h"

namespace heddle::deepseek_v4 {

inline constexpr const char* kSliding = "sliding_attention";
inline constexpr const char* kSparse = "compressed_sparse_attention";
inline constexpr const char* kHeavy = "heavily_compressed_attention";
inline constexpr const char* kHashed = "hash_moe";
inline constexpr const char* kScored = "moe";

struct Keys : decoder::CommonKeys, decoder::MixtureKeys {
  Keys();

  int64_t q_lora_rank = 1024, o_groups = 8, o_lora_rank = 1024, sliding_window = 128;
  int64_t index_n_heads = 64, index_head_dim = 128, index_topk = 512;
  int64_t hc_mult = 4, hc_sinkhorn_iters = 20;
  double hc_eps = 1e-6;

  std::optional<int64_t> moe_intermediate_size;
  std::string scoring_func = "sqrtsoftplus";
  double swiglu_limit = 10;

  // One entry per layer, once the groups below were read.
  std::optional<std::vector<std::string>> layer_types, mlp_layer_types;
  int64_t sparse_rate = 4, heavy_rate = 128;  // compress_rates
  // `rotary` belongs to layers without compressed entries.
  decoder::RotaryKeys compressed_rotary;
};

void fill(Keys& keys);
// Describes why the keys are invalid; empty if they are valid.
std::string complaint(const Keys& keys);

// Reads layer_types and mlp_layer_types in all spellings, and the compression rates.
model::KeyGroup<Keys> layer_keys();
// Reads keys with aliases, which must agree.
model::KeyGroup<Keys> other_names();
// Reads rope_parameters in both spellings.
model::KeyGroup<Keys> rotary_keys();

decoder::Model model_of(const Keys& keys);

}  // namespace heddle::deepseek_v4
