// Granite: Llama with four multipliers.
#include "families.h"
#include "heddle/decoder/family.h"

namespace heddle::dense {
namespace {

struct GraniteKeys : decoder::CommonKeys {
  std::string hidden_act = "silu";
  bool attention_bias = false, mlp_bias = false;
  double embedding_multiplier = 1, logits_scaling = 1, residual_multiplier = 1, attention_multiplier = 1;
};

model::ModelKeys<GraniteKeys> granite_keys() {
  auto keys = decoder::common_keys<GraniteKeys>();
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "granite");
  decoder::add_dropout(keys);
  keys.field("hidden_act", &GraniteKeys::hidden_act, "Activation function of the MLP.",
             decoder::activation_words())
      .field("attention_bias", &GraniteKeys::attention_bias, "Whether q, k, v and o have biases.")
      .field("mlp_bias", &GraniteKeys::mlp_bias, "Whether the MLP has biases.")
      .field("embedding_multiplier", &GraniteKeys::embedding_multiplier, "Factor of the embeddings.")
      .field("logits_scaling", &GraniteKeys::logits_scaling, "Divisor of the logits.", at_least(1e-30))
      .field("residual_multiplier", &GraniteKeys::residual_multiplier,
             "Factor of the outputs of attention and MLP before the residual addition.")
      .field("attention_multiplier", &GraniteKeys::attention_multiplier,
             "Factor of the attention scores, in place of 1 / sqrt(head_dim).", at_least(1e-30));
  return keys;
}

decoder::Model granite_model(const GraniteKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = attention.output_bias = keys.attention_bias;
  attention.options.scale = keys.attention_multiplier;
  decoder::Layer layer{attention, keys.mlp(decoder::activation_of(keys.hidden_act)), keys.norm()};
  std::get<decoder::Mlp>(layer.feed_forward).bias = keys.mlp_bias;
  layer.residual_multiplier = keys.residual_multiplier;
  decoder::Model model = keys.model(layer);
  model.embedding_multiplier = keys.embedding_multiplier;
  model.logits_multiplier = 1 / keys.logits_scaling;
  return model;
}

const decoder::Description<GraniteKeys>& granite() {
  static const decoder::Description<GraniteKeys> kGranite = {"granite", "GraniteForCausalLM", granite_keys(),
                                                             granite_model};
  return kGranite;
}

}  // namespace

void offer_granite(Offer& plugin) {
  plugin.model<decoder::Family<granite>>("granite", granite().keys);
}

}  // namespace heddle::dense
