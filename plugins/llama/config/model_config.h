// Configuration of a model of the family: the keys of a Hugging Face config.json that affect results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/config/node.h"
#include "heddle/model/family.h"
#include "heddle/nn/experts.h"
#include "heddle/nn/rotary.h"
#include "heddle/nn/router.h"

namespace heddle::llama {

// Configuration of the layers with experts.
struct Mixture {
  int64_t experts = 0;       // 0: no layer has experts
  int64_t top_k = 0;         // experts per token
  int64_t width = 0;         // of an expert
  int64_t shared_width = 0;  // of the shared expert; 0: none
  bool shared_gate = true;   // multiply its output by the sigmoid of a gate
  bool normalise = false;    // the routing weights of a token sum to 1
  double scale = 1;          // factor of the routing weights, after normalization
  model::RouterRule::Score score = model::RouterRule::Score::softmax;
  int64_t groups = 1, top_groups = 1, group_best = 1;  // as in RouterRule
  bool router_bias = false;                            // bias of the router's projection
  model::ExpertActivation activation;
  bool expert_bias = false;           // biases of both projections of each expert
  bool correction = false;            // the router has a correction bias (RouterConfig)
  double correction_rate = 0;         // change of the correction bias per step
  int64_t sparse_step = 1;            // layers step - 1, 2 * step - 1, ... have experts, except
  std::vector<int64_t> dense_layers;  // these layers,
  int64_t first_sparse = 0;           // layers before this one,
  int64_t sparse_every = 1;           // and layers whose index is not a multiple of this
  model::BalanceLoss balance = {.coefficient = 0.001};
  double z_loss = 0;
  double jitter = 0;  // as in RouterConfig
  bool router_in_fp32 = false, in_turn = false;
  bool operator==(const Mixture&) const = default;

  bool sparse(int64_t layer) const;
  const char* shared_name() const { return shared_gate ? "shared_expert" : "shared_experts"; }
};

// Configuration of the indexer, which selects keys of latent attention (lightning_indexer.h).
struct Indexer {
  int64_t top_k = 0;  // selected keys per query; 0: all earlier keys
  int64_t heads = 0, head_dim = 0;
  bool interleaved = false;       // rotate neighboring pairs
  std::vector<bool> shared = {};  // layers that reuse the previous layer's selection; empty: none
  bool operator==(const Indexer&) const = default;

  bool shares(int64_t layer) const {
    return layer < static_cast<int64_t>(shared.size()) && shared[static_cast<size_t>(layer)];
  }
};

// Configuration of latent attention (latent_attention.h), which replaces key and value heads.
struct Latent {
  int64_t rank = 0;               // rank of keys and values; 0: no latent attention
  int64_t query_rank = 0;         // rank of queries; 0: full-rank queries
  int64_t plain = 0, rotary = 0;  // width of the unrotated and the rotated part of a head
  int64_t value = 0;              // width of a value head
  bool interleaved = true;        // rotate neighboring pairs
  Indexer indexer = {};
  bool operator==(const Latent&) const = default;
};

// Configuration of a model. Models of the family differ only in these fields.
struct ModelConfig {
  std::string model_type = "llama";  // a type in model_type.h
  int64_t vocab_size = 32000;
  int64_t hidden_size = 4096;
  int64_t intermediate_size = 11008;
  int64_t num_hidden_layers = 32;
  int64_t num_attention_heads = 32;
  int64_t num_key_value_heads = 32;
  int64_t head_dim = 128;  // independent of hidden_size / num_attention_heads
  int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  double rope_theta = 10000.0;
  RotaryScaling rope_scaling;
  double partial_rotary_factor = 1.0;  // fraction of each head that is rotated, from its start
  bool qkv_bias = false;               // of q_proj, k_proj, v_proj
  bool output_bias = false;            // of o_proj
  bool mlp_bias = false;
  bool qk_norm = false;           // RMSNorm over each head of q and k (qwen3)
  bool qk_norm_of_whole = false;  // RMSNorm over all heads of q and of k (olmoe)
  bool sinks = false;             // a learned score per head in its softmax (gpt_oss)
  int64_t sliding_window = 0;     // window size in tokens, including the current token,
  std::vector<bool> slides;       // in these layers; empty: none
  bool tie_word_embeddings = false;
  int64_t pad_token_id = -1;  // its embedding row gets no gradient from the look-up; -1: none
  Mixture mixture;
  Latent latent;      // if present, head_dim is latent.rotary
  std::string dtype;  // of the stored weights, as in the file: "float32", "bfloat16"; empty: not given
  bool operator==(const ModelConfig&) const = default;

  // Returns 0 if the layer has no window.
  int64_t window_of(int64_t layer) const {
    return layer < static_cast<int64_t>(slides.size()) && slides[layer] ? sliding_window : 0;
  }
  // Rounded like in transformers.
  int64_t rotary_dim() const {
    return static_cast<int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
  }
};

// Reads Hugging Face's keys with its defaults. Ignores keys that do not affect results, and refuses values
// that heddle would compute differently from transformers. Throws Error{config} at the key.
ModelConfig read_model_config(const Node& keys, UnknownKeys unknown = UnknownKeys::refused);

// Returns a config.json from which transformers reads the same model. transformers has no code for kimi_k2
// and bailing_moe.
std::string to_config_json(const ModelConfig& config);

}  // namespace heddle::llama
