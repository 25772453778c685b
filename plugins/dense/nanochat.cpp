// nanochat: norms without weight, also of the embedding and of rotated queries and keys, the opposite
// direction of rotation, an MLP of squared relu without gate, and a soft cap of the logits.
#include <ATen/core/Tensor.h>

#include "families.h"
#include "heddle/decoder/family.h"

namespace heddle::dense {
namespace {

struct NanochatKeys : decoder::CommonKeys {
  NanochatKeys() {
    vocab_size = 50304, hidden_size = 768, intermediate_size = 8192;
    num_hidden_layers = 12, num_attention_heads = 6, pad_token_id = 1;
  }
  std::string hidden_act = "relu2";
  bool attention_bias = false;
  std::optional<double> final_logit_softcapping = 15.0;
};

model::ModelKeys<NanochatKeys> nanochat_keys() {
  auto keys = decoder::common_keys<NanochatKeys>();
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "nanochat");
  decoder::add_dropout(keys);
  keys.field("hidden_act", &NanochatKeys::hidden_act, "Activation function of the MLP.",
             decoder::activation_words())
      .field("attention_bias", &NanochatKeys::attention_bias, "Whether q, k, v and o have biases.")
      .field("final_logit_softcapping", &NanochatKeys::final_logit_softcapping,
             "Soft cap of the logits: cap * tanh(logit / cap). null: no cap.", at_least(1e-38));
  return keys;
}

// Returns the frequencies of the opposite direction. They carry no factor of cos and sin (yarn), which the
// norms after the rotation would remove.
std::vector<double> negative_frequencies(const decoder::Rotation& rotation) {
  const at::Tensor plain = model::rotary_frequencies(rotation.dim, rotation.theta, rotation.scaling);
  const float* first = plain.const_data_ptr<float>();
  std::vector<double> out;
  for (int64_t i = 0; i < plain.numel(); ++i) out.push_back(-static_cast<double>(first[i]));
  return out;
}

decoder::Model nanochat_model(const NanochatKeys& keys) {
  const decoder::Norm norm{decoder::Norm::Kind::rms_bare, keys.rms_norm_eps};
  decoder::Attention attention = keys.attention();
  attention.rotation.frequencies = negative_frequencies(attention.rotation);
  // transformers normalizes after the rotation. A norm without weight commutes with it.
  attention.head_norm = decoder::Attention::HeadNorm::each_head;
  attention.norm = norm;
  attention.qkv_bias = attention.output_bias = keys.attention_bias;
  decoder::Mlp mlp = keys.mlp(decoder::activation_of(keys.hidden_act));
  mlp.gated = false;
  decoder::Model model = keys.model({attention, mlp, norm});
  model.embedding_norm = model.last_norm = norm;
  model.logits_soft_cap = keys.final_logit_softcapping.value_or(0);
  return model;
}

const decoder::Description<NanochatKeys>& nanochat() {
  static const decoder::Description<NanochatKeys> kNanochat = {
      "nanochat", "NanoChatForCausalLM", nanochat_keys(), nanochat_model,
      decoder::Files().renamed("mlp.up_proj", "mlp.fc1").renamed("mlp.down_proj", "mlp.fc2")};
  return kNanochat;
}

}  // namespace

void offer_nanochat(Offer& plugin) {
  plugin.model<decoder::Family<nanochat>>("nanochat", nanochat().keys);
}

}  // namespace heddle::dense
