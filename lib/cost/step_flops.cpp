// A formula for each shape of model, and the table of the types that have one of their own.
#include "lib/cost/step_flops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace heddle {
namespace {

using ConfigKeys = nlohmann::json;

// The sizes of a config.json, with G samples of S tokens: `layers` of width h, a heads, g key heads, MLPs of
// width f, V words.
struct ModelSizes {
  const ConfigKeys& keys;
  double G, S, layers, h, a, g, f, V;

  ModelSizes(const ConfigKeys& config, int64_t samples, int64_t tokens)
      : keys(config), G(static_cast<double>(samples)), S(static_cast<double>(tokens)) {
    layers = of("num_hidden_layers", 0);
    h = of("hidden_size", 1);
    a = of("num_attention_heads", 1);
    g = of("num_key_value_heads", a);
    f = of("intermediate_size", 0);
    V = of("vocab_size", 0);
  }

  double of(const char* key, double otherwise) const {
    const auto found = keys.find(key);
    return found != keys.end() && found->is_number() ? found->get<double>() : otherwise;
  }
  double head() const { return of("head_dim", h / a); }
  double expert_width() const { return of("moe_intermediate_size", f); }
  double chosen(double otherwise) const { return of("num_experts_per_tok", otherwise); }
  double logits() const { return 6 * G * S * h * V; }
  // Of a gated MLP on every token.
  double gated(double width) const { return 6 * G * S * 3 * h * width; }
  // Attention with grouped heads, over the causal half of the scores.
  double grouped_attention() const { return 6 * G * S * h * (a * head()) * (2 * g / a + 1 + S / h + 1); }
  // How many layers have attention, where others have a delta net.
  double attention_layers() const {
    const auto types = keys.find("layer_types");
    if (types != keys.end() && types->is_array() && !types->empty())
      return static_cast<double>(std::count(types->begin(), types->end(), "full_attention"));
    return std::floor(layers / of("full_attention_interval", 4));
  }
  // How many layers have experts.
  double expert_layers() const {
    const double dense = of("first_k_dense_replace", 0);
    const auto types = keys.find("mlp_layer_types");
    if (types != keys.end() && types->is_array())
      return static_cast<double>(std::count(types->begin(), types->end(), "sparse"));
    const auto frequency = keys.find("moe_layer_freq");
    if (frequency != keys.end() && frequency->is_array()) {
      double out = 0;
      for (const ConfigKeys& one : *frequency) out += one.get<double>() != 0 ? 1 : 0;
      return out;
    }
    return layers - dense;
  }
};

double llama(const ModelSizes& m) {
  return m.G * m.S * m.layers * m.h * m.h *
         (12 + 12 * m.g / m.a + 18 * m.f / m.h + 6 * m.S / m.h + 6 * m.V / (m.layers * m.h));
}

double mixtral(const ModelSizes& m) {
  return llama(m) + m.G * m.S * m.layers * m.h * 18 * m.f * (m.chosen(2) - 1);
}

double qwen(const ModelSizes& m) {
  return m.layers * (m.grouped_attention() + m.gated(m.expert_width() * m.chosen(1))) + m.logits();
}

// GLM-4.5: dense layers first, shared experts in the others.
double glm4_moe(const ModelSizes& m) {
  const double dense = m.of("first_k_dense_replace", 0), shared = m.of("n_shared_experts", 0);
  return m.layers * m.grouped_attention() + dense * m.gated(m.f) +
         (m.layers - dense) * m.gated(m.expert_width() * (shared + m.chosen(1))) + m.logits();
}

double minimax_m2(const ModelSizes& m) {
  const double experts = m.f * m.chosen(8) + m.of("shared_intermediate_size", 0);
  return m.layers * (m.grouped_attention() + m.gated(experts)) + m.logits();
}

// Multi-head latent attention: its projections for each token, and the causal half of its scores; with an
// indexer the scores of index_topk keys, however many there are, and those of the indexer for all pairs.
double latent_attention(const ModelSizes& m) {
  const double nope = m.of("qk_nope_head_dim", 0), rope = m.of("qk_rope_head_dim", 0),
               v = m.of("v_head_dim", 0), kv = m.of("kv_lora_rank", 0), q = m.of("q_lora_rank", 0);
  const double queries = q > 0 ? m.h * q + q * m.a * (nope + rope) : m.h * m.a * (nope + rope);
  const double weights = queries + m.h * rope + m.h * kv + kv * m.a * (nope + v) + v * m.a * m.h;
  const double chosen = m.of("index_topk", 0), heads = m.of("index_n_heads", 0),
               dim = m.of("index_head_dim", 0);
  const double keys = chosen > 0 ? chosen : m.S / 2;
  const double indexer = chosen > 0 ? q * heads * dim + m.h * (dim + heads) + heads * dim * m.S : 0;
  return 6 * m.G * m.S * (weights + m.a * keys * (nope + rope + v) + indexer);
}

double latent(const ModelSizes& m, double experts_of_shared, double with_experts) {
  return m.layers * latent_attention(m) + (m.layers - with_experts) * m.gated(m.f) +
         with_experts * m.gated(m.expert_width() * (experts_of_shared + m.chosen(1))) + m.logits();
}

// One shared expert, whatever n_shared_experts says; a number in moe_layer_freq counts from the first layer.
double deepseek_v3(const ModelSizes& m) {
  const double frequency = m.of("moe_layer_freq", 0);
  if (frequency < 1) return latent(m, 1, m.expert_layers());
  const auto each = static_cast<int64_t>(frequency), layers = static_cast<int64_t>(m.layers);
  return latent(m, 1, static_cast<double>((layers + each - 1) / each));
}

double latent_with_shared(const ModelSizes& m) {
  return latent(m, m.of("n_shared_experts", 0), m.expert_layers());
}

// Every other layer sees a window of 128, whatever sliding_window says.
double gpt_oss(const ModelSizes& m) {
  const double d = m.head(), window = 128;
  const double whole = m.S * (m.S + 1) / 2;
  const double near = window * (window + 1) / 2 + (m.S - window) * window;
  const double linear =
      m.S * m.h * d * (m.a + 2 * m.g) + m.S * m.h * m.a * d + 3 * m.S * m.chosen(1) * m.h * m.f;
  const auto layers = static_cast<int64_t>(m.layers);
  const double pairs = static_cast<double>((layers + 1) / 2) * whole + static_cast<double>(layers / 2) * near;
  return 6 * m.G * (m.layers * linear + 2 * m.a * d * pairs) + m.logits();
}

double gpt2(const ModelSizes& m) {
  const double h = m.of("n_embd", m.h), layers = m.of("n_layer", m.layers);
  return 3 * layers * (24 * m.G * m.S * h * h + 2 * m.G * m.S * m.S * h) + 6 * m.G * m.S * h * m.V;
}

double delta_net(const ModelSizes& m) {
  const double heads = m.of("linear_num_value_heads", 0), width = m.of("linear_value_head_dim", 0);
  const double keys = m.of("linear_num_key_heads", 0) * m.of("linear_key_head_dim", 0),
               values = heads * width;
  return 6 * m.G * m.S *
         (m.h * (2 * keys + 3 * values + 2 * heads) +
          m.of("linear_conv_kernel_dim", 4) * (2 * keys + values) + 4 * values * width);
}

// Every layer has experts where any has.
double qwen_next(const ModelSizes& m) {
  const double attending = m.attention_layers(), chosen = m.of("num_experts", 0) > 1 ? m.chosen(1) : 0;
  const double width =
      chosen > 0 ? m.of("moe_intermediate_size", 0) * chosen + m.of("shared_expert_intermediate_size", 0)
                 : m.f;
  const double attention = m.grouped_attention() + 6 * m.G * m.S * m.h * m.a * m.head();
  return attending * attention + (m.layers - attending) * delta_net(m) + m.layers * m.gated(width) +
         m.logits();
}

// The layers that the key names, a sign each: heads as wide as the hidden states, MLPs as if they had a gate.
double nemotron_layers(const ModelSizes& m, const char* key) {
  const std::string pattern = m.keys.value(key, "");
  const auto count = [&](char sign) {
    return static_cast<double>(std::count(pattern.begin(), pattern.end(), sign));
  };
  const double tokens = m.G * m.S, state = m.of("ssm_state_size", 0), heads = m.of("mamba_num_heads", 0);
  const double inner = heads * m.of("mamba_head_dim", 0), shared = m.of("n_groups", 0) * state;
  const double mamba = 6 * tokens * m.h * (3 * inner + 2 * shared + heads) + 21 * tokens * inner * state;
  const double attention = 6 * tokens * m.h * (2 * m.h + m.g / m.a * m.h * 2 + m.S);
  const double latent = m.of("moe_latent_size", 0), width = latent > 0 ? latent : m.h;
  const double experts =
      6 * tokens *
      (2 * m.chosen(1) * width * m.expert_width() + 2 * m.h * m.of("moe_shared_expert_intermediate_size", 0) +
       m.h * m.of("n_routed_experts", 0) + 2 * m.h * latent);
  return count('M') * mamba + count('*') * attention + count('-') * m.gated(m.f) + count('E') * experts;
}

double nemotron_h(const ModelSizes& m) {
  const double mtp = m.of("num_nextn_predict_layers", 0);
  const double head =
      nemotron_layers(m, "mtp_hybrid_override_pattern") + 12 * m.G * m.S * m.h * m.h + m.logits();
  return nemotron_layers(m, "hybrid_override_pattern") + m.logits() + mtp * head;
}

// Step-3.5: heads and windows by layer, experts in the layers that are named, prediction heads with full
// attention and experts.
double step3p5(const ModelSizes& m) {
  const auto count = [&](const char* key, const char* word, double otherwise) {
    const auto words = m.keys.find(key);
    if (words == m.keys.end() || !words->is_array()) return otherwise;
    return static_cast<double>(std::count(words->begin(), words->end(), word));
  };
  const auto other = m.keys.find("attention_other_setting");
  const double heads = other == m.keys.end() ? m.a : other->value("num_attention_heads", m.a);
  const double window = m.of("sliding_window", 512), d = m.head();
  const double whole = m.S * (m.S + 1) / 2, near = window * (window + 1) / 2 + (m.S - window) * window;
  const auto attention = [&](double of, double pairs) {
    return 6 * m.G * (m.S * m.h * d * 2 * (of + m.g) + of * pairs * d * 2);
  };
  const double full = count("layer_types", "full_attention", m.layers), mtp = m.of("num_mtp_layers", 0);
  const double sparse = count("mlp_layer_types", "sparse", m.layers - 3);
  const double experts = m.gated(m.expert_width() * m.chosen(8)) + m.gated(m.of("share_expert_dim", 0));
  return full * attention(m.a, whole) + (m.layers - full) * attention(heads, near) + sparse * experts +
         (m.layers - sparse) * m.gated(m.f) + m.logits() +
         mtp * (12 * m.G * m.S * m.h * m.h + attention(m.a, whole) + experts + m.logits());
}

// As if MLPs had no gate, and the later half of the layers experts where there are any.
double general(const ModelSizes& m) {
  const double chosen = m.chosen(0), layers = m.layers;
  const double with_experts = chosen > 0 ? static_cast<double>(static_cast<int64_t>(layers) / 2) : 0;
  const double widths = m.f * (layers - with_experts + chosen * with_experts);
  return 12 * m.G * m.S * layers * m.h * m.h *
         (1 + m.g / m.a + m.S / (2 * m.h) + widths / (layers * m.h) + m.V / (2 * layers * m.h));
}

using Formula = double (*)(const ModelSizes&);
constexpr std::array<std::pair<std::string_view, Formula>, 22> kFormulas = {{
    {"llama", llama},
    {"mixtral", mixtral},
    {"qwen2", qwen},
    {"qwen3", qwen},
    {"qwen3_moe", qwen},
    {"glm4", qwen},
    {"glm4_moe", glm4_moe},
    {"minimax_m2", minimax_m2},
    {"deepseek_v3", deepseek_v3},
    {"kimi_k2", latent_with_shared},
    {"glm4_moe_lite", latent_with_shared},
    {"glm_moe_dsa", latent_with_shared},
    {"gpt_oss", gpt_oss},
    {"gpt2", gpt2},
    {"nemotron_h", nemotron_h},
    {"mistral4", latent_with_shared},
    {"step3p5", step3p5},
    {"qwen3_next", qwen_next},
    {"qwen3_5", qwen_next},
    {"qwen3_5_text", qwen_next},
    {"qwen3_5_moe", qwen_next},
    {"qwen3_5_moe_text", qwen_next},
}};

}  // namespace

double automodel_flops(const std::string& config_json, int64_t samples, int64_t tokens) {
  const ConfigKeys keys = ConfigKeys::parse(config_json, nullptr, false);
  if (!keys.is_object()) return 0;
  const std::string type = keys.value("model_type", "");
  const auto own = std::find_if(kFormulas.begin(), kFormulas.end(),
                                [&](const auto& formula) { return formula.first == type; });
  const ModelSizes sizes(keys, samples, tokens);
  return own == kFormulas.end() ? general(sizes) : own->second(sizes);
}

double automodel_mfu(double tflop, int ranks, double seconds, double peak_tflops) {
  if (peak_tflops <= 0 || seconds <= 0) return 0;
  return tflop / (ranks * seconds) / peak_tflops * 100;
}

}  // namespace heddle
