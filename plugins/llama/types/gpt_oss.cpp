// GPT-OSS: attention with sinks and sliding windows, biases in all layers, experts with a clamped activation.
#include <cmath>
#include <nlohmann/json.hpp>

#include "../config/model_type.h"
#include "../config/read_mixture.h"
#include "../config/window.h"
#include "heddle/decoder/benchmark.h"
#include "heddle/model/config_keys.h"

namespace heddle::llama {
namespace {

using ActivationKind = model::ExpertActivation::Kind;

constexpr int64_t kGptOssWindow = 128;

void set_gpt_oss(ModelConfig& config) {
  config.vocab_size = 201088, config.hidden_size = config.intermediate_size = 2880;
  config.num_hidden_layers = 36, config.num_attention_heads = 64, config.num_key_value_heads = 8;
  config.head_dim = 64, config.max_position_embeddings = 131072, config.rms_norm_eps = 1e-5;
  config.rope_theta = 150000.0;
  RotaryScaling& scaling = config.rope_scaling;
  scaling.kind = RotaryScaling::Kind::yarn;
  scaling.factor = 32, scaling.original_positions = 4096, scaling.truncate = false;
  config.sinks = config.qkv_bias = config.output_bias = true;
  Mixture& mixture = config.mixture;
  mixture.experts = 128, mixture.top_k = 4;
  mixture.score = model::RouterRule::Score::softmax_after_topk;
  mixture.router_bias = mixture.expert_bias = true;
  mixture.activation = {ActivationKind::clamped_swiglu, 1.702, 7.0, true};
}

double above_zero(const Node& keys, const char* key, double otherwise) {
  const double value = model::real_or(keys, key, otherwise);
  if (!(value > 0) || !std::isfinite(value)) model::refuse(*keys.find(key), "expected a number above 0");
  return value;
}

void read_gpt_oss(const Node& keys, ModelConfig& config) {
  config.qkv_bias = config.output_bias = model::boolean_or(keys, "attention_bias", true);
  read_windows(keys, config, kGptOssWindow, [](int64_t layer, const Node&) { return layer % 2 == 0; });
  read_experts(keys, config);
  Mixture& mixture = config.mixture;
  mixture.width = config.intermediate_size;
  mixture.activation.alpha = above_zero(keys, "swiglu_alpha", mixture.activation.alpha);
  mixture.activation.limit = above_zero(keys, "swiglu_limit", mixture.activation.limit);
  read_balance(keys, mixture);
}

void write_gpt_oss(const ModelConfig& config, nlohmann::ordered_json& out) {
  const Mixture& mixture = config.mixture;
  out["attention_bias"] = config.qkv_bias;
  write_windows(config, out);
  out["num_local_experts"] = mixture.experts;
  out["swiglu_alpha"] = mixture.activation.alpha;
  out["swiglu_limit"] = mixture.activation.limit;
  write_balance(mixture, out);
}

// Counts a window of 128 in every other layer, whatever sliding_window is.
double gpt_oss_benchmark(const BenchmarkSizes& m) {
  const double d = m.head(), whole = m.S * (m.S + 1) / 2, near = m.pairs_within(128);
  const double linear =
      m.S * m.h * d * (m.a + 2 * m.g) + m.S * m.h * m.a * d + 3 * m.S * m.chosen(1) * m.h * m.f;
  const auto layers = static_cast<int64_t>(m.layers);
  const double pairs = static_cast<double>((layers + 1) / 2) * whole + static_cast<double>(layers / 2) * near;
  return 6 * m.G * (m.layers * linear + 2 * m.a * d * pairs) + m.logits();
}

std::vector<Key> keys_of_gpt_oss() {
  std::vector<Key> keys = {
      {{"attention_bias", "bool", "true", "", "Whether q, k, v and o have biases.", ""}},
      {{"sliding_window", "int or null", "128", "1..2^28",
        "Size of the window of sliding_attention layers in tokens, including the current token.", ""}},
      {{"layer_types", "list or null", "null", "full_attention, sliding_attention",
        "Attention type of each layer. null: they alternate, beginning with sliding_attention.", ""}},
      {{"swiglu_alpha", "float", "1.702", "above 0", "Factor in the sigmoid of the experts' gate.", ""}},
      {{"swiglu_limit", "float", "7.0", "above 0",
        "Limit of the SwiGLU inputs: gate values are clamped from above, up values on both sides.", ""}},
      {{"experts_per_token", "int", "4", "", "Ignored: num_experts_per_tok is used.", ""}},
      {{"initial_context_length", "int", "4096", "", "Ignored: original_max_position_embeddings is used.",
        ""}}};
  add_expert_keys(keys, "128", {"num_local_experts", "num_experts"});
  add_balance_keys(keys);
  return keys;
}

}  // namespace

const ModelGroup& gpt_oss_models() {
  static const ModelGroup kGroup = [] {
    ModelType type{"gpt_oss", "GptOssForCausalLM", set_gpt_oss, read_gpt_oss, write_gpt_oss};
    type.files.experts({.router = "router", .stacked = true});
    type.benchmark = gpt_oss_benchmark;
    type.automodel_keys = decoder::automodel_loss();
    return ModelGroup{{type}, keys_of_gpt_oss()};
  }();
  return kGroup;
}

}  // namespace heddle::llama
