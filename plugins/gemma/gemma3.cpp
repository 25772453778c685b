// Gemma 3: Gemma 2 with norms of queries and keys, full attention in every sixth layer, and two rotary bases.
#include "families.h"

#include <cmath>

#include "heddle/decoder/text_family.h"

namespace heddle::gemma {
namespace {

struct Gemma3Keys : decoder::CommonKeys {
  Gemma3Keys() {
    vocab_size = 262208, hidden_size = 2304, intermediate_size = 9216, num_hidden_layers = 26;
    num_attention_heads = 8, num_key_value_heads = 4, head_dim = 256, max_position_embeddings = 131072;
    tie_word_embeddings = true, pad_token_id = 0, rotary.theta = 1e6;
  }
  bool attention_bias = false;
  std::string hidden_activation = "gelu_pytorch_tanh";
  int64_t query_pre_attn_scalar = 256;
  std::optional<int64_t> sliding_window = 4096, sliding_window_pattern;
  std::optional<std::vector<std::string>> layer_types;
  std::optional<double> final_logit_softcapping;
  decoder::RotaryKeys sliding_rotary;

  bool slides(int64_t layer) const {
    if (layer_types) return (*layer_types)[static_cast<size_t>(layer)] == decoder::kSlidingAttention;
    return (layer + 1) % sliding_window_pattern.value_or(6) != 0;
  }
};

void add_attention(model::ModelKeys<Gemma3Keys>& keys) {
  keys.field("attention_bias", &Gemma3Keys::attention_bias, "Whether q, k, v and o have biases.")
      .field("query_pre_attn_scalar", &Gemma3Keys::query_pre_attn_scalar,
             "Attention scores are divided by the square root of this number.", decoder::kSize)
      .field("sliding_window", &Gemma3Keys::sliding_window,
             "Size of the window of sliding_attention layers in tokens, including the current token.",
             decoder::kSize)
      .field("sliding_window_pattern", &Gemma3Keys::sliding_window_pattern,
             "Every Nth layer uses full attention. null: 6.", decoder::kSize)
      .field("layer_types", &Gemma3Keys::layer_types,
             "Type of each layer: full_attention or sliding_attention. null: derived from "
             "sliding_window_pattern.")
      .rule([](const Gemma3Keys& given) {
        return decoder::complaint_of_layer_types(given.layer_types, given.num_hidden_layers);
      });
}

model::ModelKeys<Gemma3Keys> keys_of_gemma3() {
  auto keys = decoder::common_keys<Gemma3Keys>();
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary_by_type(keys, "gemma3_text");
  decoder::add_dropout(keys);
  add_attention(keys);
  keys.field("hidden_activation", &Gemma3Keys::hidden_activation, "Activation function of the MLP.",
             decoder::activation_words())
      .field("final_logit_softcapping", &Gemma3Keys::final_logit_softcapping,
             "Soft cap of the logits: cap * tanh(logit / cap). null: no cap.", at_least(1e-30))
      .only("attn_logit_softcapping", Node(),
            "A soft cap of attention scores is refused, because transformers' Gemma 3 has none.")
      .only("use_bidirectional_attention", Node::boolean(false), "Only causal attention is built.")
      .unused("hidden_act", "hidden_activation is used instead.")
      .unused("_sliding_window_pattern", "layer_types is used instead.");
  return keys;
}

decoder::Model gemma3_model(const Gemma3Keys& keys) {
  decoder::Norm norm = keys.norm();
  norm.kind = decoder::Norm::Kind::rms_plus_one;
  decoder::Model model = keys.model();
  model.last_norm = norm;
  model.embedding_multiplier = std::sqrt(static_cast<double>(keys.hidden_size));
  model.logits_soft_cap = keys.final_logit_softcapping.value_or(0);
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Attention attention = keys.attention();
    attention.qkv_bias = attention.output_bias = keys.attention_bias;
    attention.head_norm = decoder::Attention::HeadNorm::each_head;
    attention.norm = norm;
    attention.options.scale = 1 / std::sqrt(static_cast<double>(keys.query_pre_attn_scalar));
    if (keys.slides(i)) {
      attention.options.window = keys.sliding_window.value_or(0);
      attention.rotation = {attention.head_dim, keys.sliding_rotary.theta, keys.sliding_rotary.scaling};
    }
    model.layers.push_back({attention, keys.mlp(decoder::activation_of(keys.hidden_activation)), norm,
                            decoder::Layer::Order::both});
  }
  return model;
}

// The text model inside a model with images has a prefix, in an older and a newer spelling.
const decoder::Description<Gemma3Keys>& gemma3_text() {
  static const decoder::Description<Gemma3Keys> kGemma3 = {
      "gemma3_text", "Gemma3ForCausalLM", keys_of_gemma3(), gemma3_model,
      decoder::Files()
          .otherwise("model.", "language_model.model.")
          .otherwise("model.", "model.language_model.")
          .otherwise("lm_head.", "language_model.lm_head.")
          .ignored_module("vision_tower")
          .ignored_module("multi_modal_projector")};
  return kGemma3;
}

}  // namespace

void offer_gemma3(Offer& plugin) {
  plugin.model<decoder::Family<gemma3_text>>("gemma3_text", gemma3_text().keys);
  using Text = decoder::TextFamily<gemma3_text>;
  plugin.model<Text>("gemma3", Text::table());
}

}  // namespace heddle::gemma
