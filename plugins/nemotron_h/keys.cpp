// Keys of Nemotron-H, and the description of its layers, each with the one part that its pattern names.
#include "keys.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "heddle/decoder/benchmark.h"
#include "heddle/decoder/description.h"

namespace heddle::nemotron_h {
namespace {

// Letter and words of a layer type, in both spellings of transformers.
struct Part {
  char sign;
  const char *word, *older;
};
constexpr std::array<Part, 4> kParts = {{{'M', "linear_attention", "mamba"},
                                         {'*', "full_attention", "attention"},
                                         {'-', "mlp", "mlp"},
                                         {'E', "moe", "moe"}}};

std::string pattern_of(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    const auto found = std::find_if(kParts.begin(), kParts.end(), [&](const Part& part) {
      return word == part.word || word == part.older;
    });
    out += found == kParts.end() ? '?' : found->sign;
  }
  return out;
}

bool is_known(char sign) {
  return std::any_of(kParts.begin(), kParts.end(), [&](const Part& part) { return part.sign == sign; });
}

std::string complaint_of(const std::string& key, const std::string& words, const std::string& pattern) {
  if (pattern.empty()) return key + " contains no layer";
  if (std::all_of(pattern.begin(), pattern.end(), is_known)) return "";
  return key + " '" + pattern +
         "' contains an unknown layer; supported: M (Mamba-2), * (attention), - (an MLP) and E (experts), or "
         "in " +
         words + " linear_attention or mamba, full_attention or attention, mlp and moe";
}

decoder::Mlp mlp_of(const Keys& keys) {
  decoder::Mlp out = keys.mlp(decoder::Activation::relu2);
  out.gated = false, out.bias = keys.mlp_bias;
  return out;
}

decoder::Mixture mixture_of(const Keys& keys) {
  decoder::Mixture out = keys.corrected_mixture();
  out.router.in_fp32 = true;
  out.activation.kind = model::ExpertActivation::Kind::relu2;
  out.latent = keys.moe_latent_size.value_or(0);
  out.shared_width = keys.moe_shared_expert_intermediate_size;
  out.shared_gated = false, out.shared_activation = decoder::Activation::relu2;
  return out;
}

decoder::Mamba mamba_of(const Keys& keys) {
  return {keys.mamba_num_heads, keys.n_groups,    keys.mamba_head_dim, keys.ssm_state_size,
          keys.conv_kernel,     keys.use_bias,    keys.use_conv_bias,  keys.rms_norm_eps,
          keys.shortest_step,   keys.longest_step};
}

std::vector<decoder::Layer> layers_of(const Keys& keys, const std::string& pattern,
                                      const std::shared_ptr<const decoder::MixerMaker>& mamba) {
  std::vector<decoder::Layer> out;
  decoder::Attention attention = keys.attention();
  attention.rotation = {};
  for (const char sign : pattern) {
    decoder::Layer layer{decoder::Absent(), decoder::Absent(), keys.norm()};
    if (sign == 'M') layer.mixer = mamba;
    if (sign == '*') layer.mixer = attention;
    if (sign == '-') layer.feed_forward = mlp_of(keys);
    if (sign == 'E') layer.feed_forward = mixture_of(keys);
    out.push_back(std::move(layer));
  }
  return out;
}

// Counts the layers in the key, one letter per layer. Heads count as wide as the hidden states, MLPs as if
// they had a gate.
double benchmark_of_layers(const BenchmarkSizes& m, const char* key) {
  const std::string pattern = model::text_or(m.keys, key, "");
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

}  // namespace

double benchmark(const BenchmarkSizes& m) {
  const double head =
      benchmark_of_layers(m, "mtp_hybrid_override_pattern") + 12 * m.G * m.S * m.h * m.h + m.logits();
  return benchmark_of_layers(m, "hybrid_override_pattern") + m.logits() +
         m.of("num_nextn_predict_layers", 0) * head;
}

Keys::Keys() {
  vocab_size = 131072, intermediate_size = 21504, num_hidden_layers = 0;
  num_key_value_heads = 8, head_dim = 128, max_position_embeddings = 4096;
  rms_norm_eps = 1e-5, experts = 8, experts_of_token = 2, expert_width = 7688;
}

void fill_patterns(Keys& keys) {
  if (keys.layers_block_type && !keys.hybrid_override_pattern)
    keys.hybrid_override_pattern = pattern_of(*keys.layers_block_type);
  if (!keys.hybrid_override_pattern) keys.hybrid_override_pattern = "ME*-";
  if (keys.mtp_layers_block_type && !keys.mtp_hybrid_override_pattern)
    keys.mtp_hybrid_override_pattern = pattern_of(*keys.mtp_layers_block_type);
  if (!keys.mtp_hybrid_override_pattern) keys.mtp_hybrid_override_pattern = "*E";
  keys.layers_block_type.reset(), keys.mtp_layers_block_type.reset();
  if (keys.num_hidden_layers == 0)
    keys.num_hidden_layers = static_cast<int64_t>(keys.hybrid_override_pattern->size());
}

std::string complaint_of_patterns(const Keys& keys) {
  if (keys.tie_word_embeddings) return "tie_word_embeddings: true is not supported, as in transformers";
  const std::string& pattern = *keys.hybrid_override_pattern;
  if (std::string complaint = complaint_of("hybrid_override_pattern", "layers_block_type", pattern);
      !complaint.empty())
    return complaint;
  if (keys.num_hidden_layers > static_cast<int64_t>(pattern.size()))
    return "num_hidden_layers is " + std::to_string(keys.num_hidden_layers) +
           ", but hybrid_override_pattern has " + std::to_string(pattern.size()) + " layers";
  return complaint_of("mtp_hybrid_override_pattern", "mtp_layers_block_type",
                      *keys.mtp_hybrid_override_pattern);
}

std::string complaint_of_experts(const Keys& keys) {
  const std::string mtp = keys.num_nextn_predict_layers > 0 ? *keys.mtp_hybrid_override_pattern : "";
  const bool any = (*keys.hybrid_override_pattern + mtp).find('E') != std::string::npos;
  return any && keys.mlp_bias ? "mlp_bias: true is not built in models with experts" : "";
}

decoder::Model model_of(const Keys& keys) {
  decoder::Model model = keys.model();
  if (keys.rescale_prenorm_residual)
    model.residual_std = keys.initializer_range / std::sqrt(static_cast<double>(keys.num_hidden_layers));
  decoder::Mamba form = mamba_of(keys);
  form.output_std = model.residual_std, form.output_bias = keys.use_bias;
  const auto mamba = decoder::mamba(form);
  const auto layers = static_cast<size_t>(keys.num_hidden_layers);
  model.layers = layers_of(keys, keys.hybrid_override_pattern->substr(0, layers), mamba);
  model.mtp.tokens = keys.num_nextn_predict_layers;
  model.mtp.repeated = keys.mtp_use_repeated_layer;
  model.mtp.loss_factor = keys.mtp_loss_scaling_factor;
  if (keys.num_nextn_predict_layers > 0)
    model.mtp.layers = layers_of(keys, *keys.mtp_hybrid_override_pattern, mamba);
  return model;
}

}  // namespace heddle::nemotron_h
