// The shape of a model of the family: the keys of a Hugging Face config.json that change its numbers.
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

// What layers with experts add.
struct Mixture {
  int64_t experts = 0;       // 0: no layer has experts
  int64_t top_k = 0;         // experts of a token
  int64_t width = 0;         // of an expert
  int64_t shared_width = 0;  // of the shared expert; 0: there is none
  bool shared_gate = true;   // its output is multiplied by the sigmoid of a gate
  bool normalise = false;    // the weights of a token's experts sum to 1
  double scale = 1;          // of the weights, after that
  model::RouterRule::Score score = model::RouterRule::Score::softmax;
  int64_t groups = 1, top_groups = 1, group_best = 1;  // as in RouterRule
  bool router_bias = false;                            // of the router's product
  model::ExpertActivation activation;
  bool expert_bias = false;           // of both products of each expert
  bool correction = false;            // a bias that chooses (RouterConfig),
  double correction_rate = 0;         // and how far each step moves it
  int64_t sparse_step = 1;            // layers step - 1, 2 step - 1, ... have experts,
  std::vector<int64_t> dense_layers;  // but for these,
  int64_t first_sparse = 0;           // for those before this one,
  int64_t sparse_every = 1;           // and for those that this does not divide
  model::BalanceLoss balance = {.coefficient = 0.001};
  double z_loss = 0;
  double jitter = 0;  // RouterConfig
  bool router_in_fp32 = false, in_turn = false;
  bool operator==(const Mixture&) const = default;

  bool sparse(int64_t layer) const;
  const char* shared_name() const { return shared_gate ? "shared_expert" : "shared_experts"; }
};

// What chooses the keys of latent attention (lightning_indexer.h).
struct Indexer {
  int64_t top_k = 0;  // keys that a query sees; 0: all before it
  int64_t heads = 0, head_dim = 0;
  bool interleaved = false;       // rotated pairs are neighbours
  std::vector<bool> shared = {};  // layers that see what the layer before chose; empty: none
  bool operator==(const Indexer&) const = default;

  bool shares(int64_t layer) const {
    return layer < static_cast<int64_t>(shared.size()) && shared[static_cast<size_t>(layer)];
  }
};

// What latent attention (latent_attention.h) has in place of heads of keys and values.
struct Latent {
  int64_t rank = 0;               // of keys and values; 0: the model has no latent attention
  int64_t query_rank = 0;         // 0: queries have no latent
  int64_t plain = 0, rotary = 0;  // elements of a query and a key without and with a position
  int64_t value = 0;              // width of a head of values
  bool interleaved = true;        // rotated pairs are neighbours
  Indexer indexer = {};
  bool operator==(const Latent&) const = default;
};

// The models of the family differ only in these fields.
struct ModelConfig {
  std::string model_type = "llama";  // a type of model_type.h
  int64_t vocab_size = 32000;
  int64_t hidden_size = 4096;
  int64_t intermediate_size = 11008;
  int64_t num_hidden_layers = 32;
  int64_t num_attention_heads = 32;
  int64_t num_key_value_heads = 32;
  int64_t head_dim = 128;  // need not be hidden_size / num_attention_heads
  int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  double rope_theta = 10000.0;
  RotaryScaling rope_scaling;
  double partial_rotary_factor = 1.0;  // the part of each head that is rotated, its first numbers
  bool qkv_bias = false;               // on q_proj, k_proj, v_proj
  bool output_bias = false;            // on o_proj
  bool mlp_bias = false;
  bool qk_norm = false;           // RMSNorm over every head of q and k (qwen3),
  bool qk_norm_of_whole = false;  // or over all heads at once (olmoe)
  bool sinks = false;             // a learned score of each head in its softmax (gpt_oss)
  int64_t sliding_window = 0;     // tokens that one sees, itself with them,
  std::vector<bool> slides;       // in these layers; empty: in none
  bool tie_word_embeddings = false;
  int64_t pad_token_id = -1;  // its embedding row gets no gradient from the look-up; -1: none
  Mixture mixture;
  Latent latent;      // head_dim is latent.rotary where there is one
  std::string dtype;  // of the stored weights, as the file says: "float32", "bfloat16"; empty: not said
  bool operator==(const ModelConfig&) const = default;

  // 0: the layer has none.
  int64_t window_of(int64_t layer) const {
    return layer < static_cast<int64_t>(slides.size()) && slides[layer] ? sliding_window : 0;
  }
  // As transformers rounds it.
  int64_t rotary_dim() const {
    return static_cast<int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
  }
};

// Reads Hugging Face's keys with its defaults. Keys without effect on results are ignored; values that heddle
// would compute differently from transformers are refused with the reason. Throws Error{config} at the key.
ModelConfig read_model_config(const Node& keys, UnknownKeys unknown = UnknownKeys::refused);

// A config.json that transformers reads back to the same model; it has no code for kimi_k2 and bailing_moe.
std::string to_config_json(const ModelConfig& config);

}  // namespace heddle::llama
