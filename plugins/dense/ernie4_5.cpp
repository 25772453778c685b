// ERNIE 4.5: Llama with an interleaved rotary embedding and an independent head width.
#include "families.h"
#include "heddle/decoder/family.h"

namespace heddle::dense {
namespace {

struct ErnieKeys : decoder::CommonKeys {
  ErnieKeys() {
    vocab_size = 103424, hidden_size = 1024, intermediate_size = 3072, num_hidden_layers = 18;
    num_attention_heads = 16, num_key_value_heads = 2, head_dim = 128, max_position_embeddings = 131072;
    rms_norm_eps = 1e-5, pad_token_id = 0, tie_word_embeddings = true, rotary.theta = 500000;
  }
  std::string hidden_act = "silu";
  bool use_bias = false;
};

model::ModelKeys<ErnieKeys> ernie_keys() {
  auto keys = decoder::common_keys<ErnieKeys>();
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "ernie4_5");
  keys.field("hidden_act", &ErnieKeys::hidden_act, "Activation function of the MLP.",
             decoder::activation_words())
      .field("use_bias", &ErnieKeys::use_bias, "Whether attention and MLP have biases.");
  return keys;
}

decoder::Model ernie_model(const ErnieKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.rotation.interleaved = true;
  attention.qkv_bias = attention.output_bias = keys.use_bias;
  decoder::Mlp mlp = keys.mlp(decoder::activation_of(keys.hidden_act));
  mlp.bias = keys.use_bias;
  return keys.model({attention, mlp, keys.norm()});
}

const decoder::Description<ErnieKeys>& ernie4_5() {
  static const decoder::Description<ErnieKeys> kErnie = {"ernie4_5", "Ernie4_5ForCausalLM", ernie_keys(),
                                                         ernie_model};
  return kErnie;
}

}  // namespace

void offer_ernie4_5(Offer& plugin) {
  plugin.model<decoder::Family<ernie4_5>>("ernie4_5", ernie4_5().keys);
}

}  // namespace heddle::dense
