// MiniMax-M2: norms over all heads of queries and of keys, partial rotation, a sigmoid router.
#include <nlohmann/json.hpp>

#include "../config/read_mixture.h"
#include "heddle/decoder/benchmark.h"
#include "heddle/model/config_keys.h"
#include "sigmoid.h"

namespace heddle::llama {
namespace {

void set_minimax_m2(ModelConfig& config) {
  config.vocab_size = 200064, config.hidden_size = 3072, config.intermediate_size = 1536;
  config.num_hidden_layers = 62, config.num_attention_heads = 48, config.num_key_value_heads = 8;
  config.head_dim = 128, config.max_position_embeddings = 196608, config.rope_theta = 5e6;
  config.qk_norm = config.qk_norm_of_whole = true;
  set_sigmoid_router(config.mixture);
  config.mixture.experts = 256, config.mixture.top_k = 8;
}

// Reads rotary_dim. partial_rotary_factor overrides it.
void read_rotary_dim(const Node& keys, ModelConfig& config) {
  const Node* dim = model::given(keys, "rotary_dim");
  const Node* parameters = model::given(keys, "rope_parameters");
  const bool named = model::given(keys, "partial_rotary_factor") != nullptr ||
                     (parameters != nullptr && model::given(*parameters, "partial_rotary_factor") != nullptr);
  if (dim == nullptr || named) return;
  if (dim->as_integer() < 2 || dim->as_integer() > config.head_dim || dim->as_integer() % 2 != 0)
    model::refuse(*dim, "expected an even number from 2 to head_dim " + std::to_string(config.head_dim) +
                            ", got " + dim->written());
  config.partial_rotary_factor =
      static_cast<double>(dim->as_integer()) / static_cast<double>(config.head_dim);
}

void read_minimax_m2(const Node& keys, ModelConfig& config) {
  read_rotary_dim(keys, config);
  expect_text(keys, "scoring_func", "sigmoid", config.model_type);
  refuse_jitter(keys);
  if (model::boolean_or(keys, "output_router_logits", false) &&
      model::given(keys, "router_aux_loss_type") == nullptr)
    model::refuse(*keys.find("output_router_logits"),
                  "transformers' auxiliary loss of minimax_m2 counts experts that its router does not select",
                  "set output_router_logits: false, or router_aux_loss_type: layer");
  read_experts(keys, config);
  config.mixture.width = config.intermediate_size;
  read_sigmoid_router(keys, config.mixture);
}

void write_minimax_m2(const ModelConfig& config, nlohmann::ordered_json& out) {
  out["num_local_experts"] = config.mixture.experts;
  out["rotary_dim"] = config.rotary_dim();
  write_sigmoid_router(config.mixture, out);
}

double minimax_m2_benchmark(const BenchmarkSizes& m) {
  const double experts = m.f * m.chosen(8) + m.of("shared_intermediate_size", 0);
  return m.layers * (m.grouped_attention() + m.gated(experts)) + m.logits();
}

}  // namespace

void add_minimax_m2_keys(std::vector<Key>& keys) {
  constexpr const char* kMiniMax = "minimax_m2";
  keys.push_back({{"rotary_dim", "int or null", "null", "even, at most head_dim",
                   "Number of rotated elements per head. partial_rotary_factor overrides it.", ""},
                  kMiniMax});
  keys.push_back(
      {{"scoring_func", "str", "sigmoid", "sigmoid", "Function that converts router logits to scores.", ""},
       kMiniMax});
  keys.push_back(
      {{"router_jitter_noise", "float", "0.0", "0.0", "Router jitter is not supported.", ""}, kMiniMax});
}

ModelType minimax_m2_type() {
  ModelType type{"minimax_m2", "MiniMaxM2ForCausalLM", set_minimax_m2, read_minimax_m2, write_minimax_m2};
  type.files.experts({"block_sparse_moe", "w1", "w3", "w2", "gate", "e_score_correction_bias"});
  type.partial_rotary = true;
  type.benchmark = minimax_m2_benchmark;
  return type;
}

}  // namespace heddle::llama
