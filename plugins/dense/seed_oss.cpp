// Seed-OSS: Llama with biases of q, k and v, and an independent head width.
#include "families.h"
#include "heddle/decoder/family.h"

namespace heddle::dense {
namespace {

struct SeedOssKeys : decoder::CommonKeys {
  SeedOssKeys() {
    vocab_size = 155136, intermediate_size = 27648, num_hidden_layers = 64, num_attention_heads = 80;
    num_key_value_heads = 8, head_dim = 128, max_position_embeddings = 524288, pad_token_id = 1;
    attention_dropout = residual_dropout = 0.1;
  }
  std::string hidden_act = "silu";
  bool attention_bias = true, attention_out_bias = false, mlp_bias = false;
};

model::ModelKeys<SeedOssKeys> seed_oss_keys() {
  auto keys = decoder::common_keys<SeedOssKeys>();
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "seed_oss");
  keys.field("hidden_act", &SeedOssKeys::hidden_act, "Activation function of the MLP.",
             decoder::activation_words())
      .field("attention_bias", &SeedOssKeys::attention_bias, "Whether q, k and v have biases.")
      .field("attention_out_bias", &SeedOssKeys::attention_out_bias, "Whether o has a bias.")
      .field("mlp_bias", &SeedOssKeys::mlp_bias, "Whether the MLP has biases.");
  decoder::add_dropout(keys, {.residual = "residual_dropout"});
  return keys;
}

decoder::Model seed_oss_model(const SeedOssKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = keys.attention_bias, attention.output_bias = keys.attention_out_bias;
  decoder::Mlp mlp = keys.mlp(decoder::activation_of(keys.hidden_act));
  mlp.bias = keys.mlp_bias;
  return keys.model({attention, mlp, keys.norm()});
}

const decoder::Description<SeedOssKeys>& seed_oss() {
  static const decoder::Description<SeedOssKeys> kSeedOss = {"seed_oss", "SeedOssForCausalLM",
                                                             seed_oss_keys(), seed_oss_model};
  return kSeedOss;
}

}  // namespace

void offer_seed_oss(Offer& plugin) {
  plugin.model<decoder::Family<seed_oss>>("seed_oss", seed_oss().keys);
}

}  // namespace heddle::dense
