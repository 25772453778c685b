// OLMo 1: layer norms without weight, and clamped queries, keys and values.
#include "families.h"
#include "heddle/decoder/family.h"

namespace heddle::dense {
namespace {

constexpr double kEps = 1e-5;  // of the norms; there is no key for it

struct OlmoKeys : decoder::CommonKeys {
  OlmoKeys() { vocab_size = 50304, pad_token_id = 1; }
  std::string hidden_act = "silu";
  bool attention_bias = false;
  std::optional<double> clip_qkv;
};

model::ModelKeys<OlmoKeys> olmo_keys() {
  auto keys = decoder::common_keys<OlmoKeys>();
  decoder::add_rotary(keys, "olmo");
  decoder::add_dropout(keys);
  keys.field("hidden_act", &OlmoKeys::hidden_act, "Activation function of the MLP.",
             decoder::activation_words())
      .field("attention_bias", &OlmoKeys::attention_bias, "Whether q, k, v and o have biases.")
      .field(
          "clip_qkv", &OlmoKeys::clip_qkv,
          "Bound to whose range [-clip_qkv, clip_qkv] queries, keys and values are clamped. null: no clamp.",
          at_least(1e-38));
  return keys;
}

decoder::Model olmo_model(const OlmoKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = attention.output_bias = keys.attention_bias;
  attention.clip = keys.clip_qkv.value_or(0);
  const decoder::Norm norm{decoder::Norm::Kind::layer_bare, kEps, false};
  decoder::Model model = keys.model({attention, keys.mlp(decoder::activation_of(keys.hidden_act)), norm});
  model.last_norm = norm;
  return model;
}

const decoder::Description<OlmoKeys>& olmo() {
  static const decoder::Description<OlmoKeys> kOlmo = {"olmo", "OlmoForCausalLM", olmo_keys(), olmo_model};
  return kOlmo;
}

}  // namespace

void offer_olmo(Offer& plugin) {
  plugin.model<decoder::Family<olmo>>("olmo", olmo().keys);
}

}  // namespace heddle::dense
