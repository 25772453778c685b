// GLM-4: half of each head is rotated, in neighboring pairs, and gate and up share one tensor. The type glm4
// also has norms after attention and MLP.
#include "families.h"
#include "heddle/decoder/benchmark.h"
#include "heddle/decoder/family.h"

namespace heddle::dense {
namespace {

struct GlmKeys : decoder::CommonKeys {
  GlmKeys() {
    vocab_size = 151552, intermediate_size = 13696, num_hidden_layers = 40, num_key_value_heads = 2;
    head_dim = 128, max_position_embeddings = 131072, rms_norm_eps = 0.00000015625;
    pad_token_id = 151329, rotary.part = 0.5;
  }
  std::string hidden_act = "silu";
  bool attention_bias = true;
};

model::ModelKeys<GlmKeys> glm_keys(const std::string& model_type) {
  auto keys = decoder::common_keys<GlmKeys>();
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, model_type, {.partial = true});
  decoder::add_dropout(keys);
  keys.field("hidden_act", &GlmKeys::hidden_act, "Activation function of the MLP.",
             decoder::activation_words())
      .field("attention_bias", &GlmKeys::attention_bias, "Whether q, k and v have biases.");
  return keys;
}

decoder::Model model_with(const GlmKeys& keys, decoder::Layer::Order order) {
  decoder::Attention attention = keys.attention();
  attention.rotation.interleaved = true;
  attention.qkv_bias = keys.attention_bias;
  return keys.model({attention, keys.mlp(decoder::activation_of(keys.hidden_act)), keys.norm(), order});
}

decoder::Model glm_model(const GlmKeys& keys) {
  return model_with(keys, decoder::Layer::Order::before);
}

decoder::Model glm4_model(const GlmKeys& keys) {
  return model_with(keys, decoder::Layer::Order::both);
}

decoder::Files glm_files() {
  return decoder::Files().joined("mlp.gate_up_proj", {"mlp.gate_proj", "mlp.up_proj"});
}

const decoder::Description<GlmKeys>& glm() {
  static const decoder::Description<GlmKeys> kGlm = {"glm", "GlmForCausalLM", glm_keys("glm"), glm_model,
                                                     glm_files()};
  return kGlm;
}

// In files of glm4, as of Llama, post_attention_layernorm is the norm before the MLP.
const decoder::Description<GlmKeys>& glm4() {
  static const decoder::Description<GlmKeys> kGlm4 = {
      "glm4",
      "Glm4ForCausalLM",
      glm_keys("glm4"),
      glm4_model,
      glm_files()
          .renamed("post_attention_layernorm", "post_self_attn_layernorm")
          .renamed("pre_feedforward_layernorm", "post_attention_layernorm")
          .renamed("post_feedforward_layernorm", "post_mlp_layernorm"),
      nullptr,
      decoder::grouped_benchmark};
  return kGlm4;
}

}  // namespace

void offer_glm(Offer& plugin) {
  plugin.model<decoder::Family<glm>>("glm", glm().keys);
  plugin.model<decoder::Family<glm4>>("glm4", glm4().keys);
}

}  // namespace heddle::dense
