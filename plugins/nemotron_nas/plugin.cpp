// nemotron-nas (DeciLM): Llama's layers, each with its own head groups and MLP width, or without them.
#include "heddle/sdk.h"
#include "keys.h"

namespace heddle::nemotron_nas {
namespace {

model::ModelKeys<Keys> keys() {
  auto keys = decoder::common_keys<Keys>({.mlp = nullptr});
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "nemotron-nas");
  keys.field("attention_bias", &Keys::attention_bias, "Whether q, k, v and o have biases.")
      .field("mlp_bias", &Keys::mlp_bias, "Whether MLPs have biases.")
      .group(block_configs())
      .only("hidden_act", Node::text("silu"), "Activation function of the MLPs.")
      .only("attention_dropout", Node::real(0), "Attention dropout is not supported.");
  return keys;
}

const decoder::Description<Keys>& nemotron_nas() {
  static const decoder::Description<Keys> kNas = {"nemotron-nas", "DeciLMForCausalLM", keys(), model_of};
  return kNas;
}

}  // namespace
}  // namespace heddle::nemotron_nas

HEDDLE_PLUGIN("nemotron_nas", "0.1.0", "model nemotron-nas") {
  using namespace heddle::nemotron_nas;
  plugin.model<heddle::decoder::Family<nemotron_nas>>("nemotron-nas", nemotron_nas().keys);
}
