// Phi 1, 1.5 and 2: attention and MLP in parallel after one layer norm, biases in all layers, partial
// rotation, a plain MLP.
#include "families.h"
#include "heddle/decoder/family.h"

namespace heddle::dense {
namespace {

struct PhiKeys : decoder::CommonKeys {
  PhiKeys() {
    vocab_size = 51200, hidden_size = 2048, intermediate_size = 8192, num_hidden_layers = 24;
    rms_norm_eps = 1e-5, rotary.part = 0.5;
  }
  std::string hidden_act = "gelu_new";
};

model::ModelKeys<PhiKeys> phi_keys() {
  auto keys = decoder::common_keys<PhiKeys>();
  decoder::add_rotary(keys, "phi", {.partial = true});
  keys.field("layer_norm_eps", &decoder::CommonKeys::rms_norm_eps,
             "Epsilon added to the variance in each norm.", at_least(1e-38))
      .field("hidden_act", &PhiKeys::hidden_act, "Activation function of the MLP.",
             decoder::activation_words())
      .only("qk_layernorm", Node::boolean(false), "Norms of queries and keys are not supported.");
  decoder::add_dropout(keys, {.residual = "resid_pdrop", .embedding = "embd_pdrop"});
  return keys;
}

decoder::Model phi_model(const PhiKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = attention.output_bias = true;
  decoder::Mlp mlp = keys.mlp(decoder::activation_of(keys.hidden_act));
  mlp.gated = false, mlp.bias = true;
  const decoder::Norm norm{decoder::Norm::Kind::layer, keys.rms_norm_eps, true};
  decoder::Model model = keys.model({attention, mlp, norm, decoder::Layer::Order::side_by_side});
  model.last_norm = norm;
  model.head_bias = true;
  return model;
}

const decoder::Description<PhiKeys>& phi() {
  static const decoder::Description<PhiKeys> kPhi = {"phi", "PhiForCausalLM", phi_keys(), phi_model,
                                                     decoder::Files()
                                                         .renamed("self_attn.o_proj", "self_attn.dense")
                                                         .renamed("mlp.up_proj", "mlp.fc1")
                                                         .renamed("mlp.down_proj", "mlp.fc2")
                                                         .renamed("model.norm", "model.final_layernorm")};
  return kPhi;
}

}  // namespace

void offer_phi(Offer& plugin) {
  plugin.model<decoder::Family<phi>>("phi", phi().keys);
}

}  // namespace heddle::dense
