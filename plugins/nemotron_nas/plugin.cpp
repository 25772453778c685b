// nemotron-nas (DeciLM): Llama's layers, of which each has its own groups of heads and MLP, or lacks them.
#include "heddle/sdk.h"
#include "keys.h"

namespace heddle::nemotron_nas {
namespace {

model::ModelKeys<Keys> keys() {
  auto keys = decoder::common_keys<Keys>({.mlp = nullptr});
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "nemotron-nas");
  keys.field("attention_bias", &Keys::attention_bias, "Biases of q, k, v and o.")
      .field("mlp_bias", &Keys::mlp_bias, "Biases of MLPs.")
      .group(block_configs())
      .only("hidden_act", Node::text("silu"), "Activation of MLPs.")
      .only("attention_dropout", Node::real(0), "Dropout is refused.");
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
