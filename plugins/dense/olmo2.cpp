// OLMo 2: norms after attention and MLP, and norms of queries and keys over all heads at once.
#include "families.h"
#include "heddle/decoder/family.h"

namespace heddle::dense {
namespace {

struct Olmo2Keys : decoder::CommonKeys {
  Olmo2Keys() { vocab_size = 50304, rms_norm_eps = 1e-5, pad_token_id = 1; }
  std::string hidden_act = "silu";
  bool attention_bias = false;
};

model::ModelKeys<Olmo2Keys> olmo2_keys() {
  auto keys = decoder::common_keys<Olmo2Keys>();
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "olmo2");
  decoder::add_dropout(keys);
  keys.field("hidden_act", &Olmo2Keys::hidden_act, "Activation function of the MLP.",
             decoder::activation_words())
      .field("attention_bias", &Olmo2Keys::attention_bias, "Whether q, k, v and o have biases.");
  return keys;
}

decoder::Model olmo2_model(const Olmo2Keys& keys) {
  decoder::Attention attention = keys.attention();
  attention.head_norm = decoder::Attention::HeadNorm::whole;
  attention.qkv_bias = attention.output_bias = keys.attention_bias;
  return keys.model({attention, keys.mlp(decoder::activation_of(keys.hidden_act)), keys.norm(),
                     decoder::Layer::Order::after});
}

const decoder::Description<Olmo2Keys>& olmo2() {
  static const decoder::Description<Olmo2Keys> kOlmo2 = {"olmo2", "Olmo2ForCausalLM", olmo2_keys(),
                                                         olmo2_model};
  return kOlmo2;
}

}  // namespace

void offer_olmo2(Offer& plugin) {
  plugin.model<decoder::Family<olmo2>>("olmo2", olmo2().keys);
}

}  // namespace heddle::dense
