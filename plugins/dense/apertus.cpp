// Apertus: an MLP without gate whose activation has parameters, and norms of each head of queries and keys.
#include "families.h"
#include "heddle/decoder/family.h"

namespace heddle::dense {
namespace {

struct ApertusKeys : decoder::CommonKeys {
  ApertusKeys() {
    vocab_size = 131072, intermediate_size = 14336, max_position_embeddings = 65536;
    rms_norm_eps = 1e-5, pad_token_id = 3;
    rotary.theta = 12000000.0;
    rotary.scaling = {.kind = RotaryScaling::Kind::llama3, .factor = 8.0};
  }
  bool attention_bias = false;
};

model::ModelKeys<ApertusKeys> apertus_keys() {
  auto keys = decoder::common_keys<ApertusKeys>();
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "apertus");
  decoder::add_dropout(keys);
  keys.field("attention_bias", &ApertusKeys::attention_bias, "Whether q, k, v and o have biases.")
      .only("hidden_act", Node::text("xielu"), "Activation function of the MLP.");
  return keys;
}

decoder::Model apertus_model(const ApertusKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.head_norm = decoder::Attention::HeadNorm::each_head;
  attention.norm = keys.norm();
  attention.qkv_bias = attention.output_bias = keys.attention_bias;
  decoder::Mlp mlp = keys.mlp();
  mlp.gated = false;
  mlp.learned = decoder::xielu();
  return keys.model({attention, mlp, keys.norm()});
}

const decoder::Description<ApertusKeys>& apertus() {
  static const decoder::Description<ApertusKeys> kApertus = {
      "apertus", "ApertusForCausalLM", apertus_keys(), apertus_model,
      decoder::Files()
          .renamed("input_layernorm", "attention_layernorm")
          .renamed("post_attention_layernorm", "feedforward_layernorm")};
  return kApertus;
}

}  // namespace

void offer_apertus(Offer& plugin) {
  plugin.model<decoder::Family<apertus>>("apertus", apertus().keys);
}

}  // namespace heddle::dense
