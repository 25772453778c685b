// GPT-OSS: attention with sinks and sliding windows, biases in all layers, experts with a clamped activation.
#include <cmath>

#include "families.h"
#include "heddle/decoder/benchmark.h"
#include "keys.h"

namespace heddle::llama {
namespace {

struct GptOssKeys : ExpertKeys {
  GptOssKeys() {
    vocab_size = 201088, hidden_size = intermediate_size = 2880;
    num_hidden_layers = 36, num_attention_heads = 64, usual_key_heads = 8, head_dim = 64;
    max_position_embeddings = 131072, rms_norm_eps = 1e-5, attention_bias = true;
    rotary.theta = 150000;
    rotary.scaling = {.kind = RotaryScaling::Kind::yarn, .factor = 32, .original_positions = 4096};
    rotary.scaling.truncate = false;
    experts = 128, experts_of_token = 4, normalised = false;
  }
  double swiglu_alpha = 1.702, swiglu_limit = 7;
};

void check_above_zero(const Node& value) {
  if (!(value.as_real() > 0) || !std::isfinite(value.as_real()))
    model::refuse(value, "expected a number above 0, got " + value.written());
}

model::ModelKeys<GptOssKeys> gpt_oss_keys() {
  auto keys = add_common<GptOssKeys>("gpt_oss");
  add_attention_bias(keys);
  add_experts(keys, {.experts = "num_local_experts", .width = nullptr}, {"num_experts"}, true);
  keys.field("swiglu_alpha", &GptOssKeys::swiglu_alpha, "Factor in the sigmoid of the experts' gate.",
             Check{"above 0", check_above_zero})
      .field("swiglu_limit", &GptOssKeys::swiglu_limit,
             "Limit of the SwiGLU inputs: gate values are clamped from above, up values on both sides.",
             Check{"above 0", check_above_zero})
      .unused("experts_per_token", "Ignored: num_experts_per_tok is used.")
      .unused("initial_context_length", "Ignored: original_max_position_embeddings is used.");
  const auto read = [](const Node& given, GptOssKeys& out) {
    read_windows(given, out, 128, [](int64_t layer, int64_t) { return layer % 2 == 0; });
  };
  keys.group({{{"sliding_window", "integer or null", "128", "1..2^28",
                "Size of the window of sliding_attention layers in tokens, including the current token.", ""},
               layer_types_info("Attention type of each layer. null: they alternate, beginning with "
                                "sliding_attention.")},
              read,
              window_entries});
  return keys;
}

decoder::Model gpt_oss_model(const GptOssKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = attention.output_bias = keys.attention_bias;
  attention.sinks = true;
  decoder::Mixture mixture = keys.mixture();
  mixture.router.rule.score = model::RouterRule::Score::softmax_after_topk;
  mixture.router.bias = mixture.expert_bias = true;
  mixture.activation = {model::ExpertActivation::Kind::clamped_swiglu, keys.swiglu_alpha, keys.swiglu_limit,
                        true};
  decoder::Model model = keys.model();
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    attention.options.window = keys.window_of(i);
    model.layers.push_back({attention, mixture, keys.norm()});
  }
  return model;
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

const decoder::Description<GptOssKeys>& gpt_oss() {
  static const decoder::Description<GptOssKeys> kGptOss = {
      .model_type = "gpt_oss",
      .architecture = "GptOssForCausalLM",
      .keys = gpt_oss_keys(),
      .model = gpt_oss_model,
      .files = decoder::Files().experts({.router = "router", .stacked = true}),
      .benchmark = gpt_oss_benchmark,
      .automodel_keys = decoder::automodel_loss(),
      .signature = signature<gpt_oss>};
  return kGptOss;
}

}  // namespace

void offer_gpt_oss(Offer& plugin) {
  plugin.model<decoder::Family<gpt_oss>>("gpt_oss", gpt_oss().keys);
}

}  // namespace heddle::llama
