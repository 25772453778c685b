// Command R7B (Cohere2): attention and MLP in parallel after a layer norm without bias. Sliding-window layers
// rotate neighboring pairs, and full-attention layers do not rotate.
#include "families.h"
#include "heddle/decoder/family.h"

namespace heddle::dense {
namespace {

struct Cohere2Keys : decoder::CommonKeys {
  Cohere2Keys() {
    vocab_size = 256000, hidden_size = 8192, intermediate_size = 22528, num_hidden_layers = 40;
    num_attention_heads = 64, max_position_embeddings = 8192, rms_norm_eps = 1e-5;
    pad_token_id = 0, tie_word_embeddings = true;
  }
  std::string hidden_act = "silu";
  bool attention_bias = false;
  double logit_scale = 0.0625;
  std::optional<int64_t> sliding_window = 4096, sliding_window_pattern;
  std::optional<std::vector<std::string>> layer_types;

  bool slides(int64_t layer) const {
    if (layer_types) return (*layer_types)[static_cast<size_t>(layer)] == decoder::kSlidingAttention;
    return (layer + 1) % sliding_window_pattern.value_or(4) != 0;
  }
};

void check_logit_scale(const Node& value) {
  if (!(value.as_real() > 0))
    throw Error(ErrorCode::config, value.where(),
                "logit_scale is " + value.written() + ", but must be above 0",
                "set logit_scale to a number above 0, such as the 0.0625 of Command R7B");
}

model::ModelKeys<Cohere2Keys> cohere2_keys() {
  auto keys = decoder::common_keys<Cohere2Keys>();
  decoder::add_rotary(keys, "cohere2");
  decoder::add_dropout(keys);
  keys.field("layer_norm_eps", &decoder::CommonKeys::rms_norm_eps,
             "Epsilon added to the variance in each norm.", at_least(1e-38))
      .field("hidden_act", &Cohere2Keys::hidden_act, "Activation function of the MLP.",
             decoder::activation_words())
      .field("attention_bias", &Cohere2Keys::attention_bias, "Whether q, k, v and o have biases.")
      .field("logit_scale", &Cohere2Keys::logit_scale, "Factor that multiplies the logits.",
             Check{"above 0", check_logit_scale})
      .field("sliding_window", &Cohere2Keys::sliding_window,
             "Size of the window of sliding_attention layers in tokens, including the current token.",
             decoder::kSize)
      .field("layer_types", &Cohere2Keys::layer_types,
             "Type of each layer: full_attention or sliding_attention. null: derived from "
             "sliding_window_pattern.")
      .field("sliding_window_pattern", &Cohere2Keys::sliding_window_pattern,
             "Every Nth layer uses full attention. null: 4.", decoder::kSize)
      .rule([](const Cohere2Keys& given) {
        return decoder::complaint_of_layer_types(given.layer_types, given.num_hidden_layers);
      });
  return keys;
}

decoder::Model cohere2_model(const Cohere2Keys& keys) {
  const decoder::Norm norm{decoder::Norm::Kind::layer, keys.rms_norm_eps, false};
  decoder::Model model = keys.model();
  model.last_norm = norm;
  model.logits_multiplier = keys.logit_scale;
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Attention attention = keys.attention();
    attention.qkv_bias = attention.output_bias = keys.attention_bias;
    attention.rotation.interleaved = true;
    if (keys.slides(i))
      attention.options.window = keys.sliding_window.value_or(0);
    else
      attention.rotation = {};
    model.layers.push_back({attention, keys.mlp(decoder::activation_of(keys.hidden_act)), norm,
                            decoder::Layer::Order::side_by_side});
  }
  return model;
}

const decoder::Description<Cohere2Keys>& cohere2() {
  static const decoder::Description<Cohere2Keys> kCohere2 = {"cohere2", "Cohere2ForCausalLM", cohere2_keys(),
                                                             cohere2_model};
  return kCohere2;
}

}  // namespace

void offer_cohere2(Offer& plugin) {
  plugin.model<decoder::Family<cohere2>>("cohere2", cohere2().keys);
}

}  // namespace heddle::dense
