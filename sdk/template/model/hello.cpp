// A family of models: a decoder in the manner of Gemma 2, described on heddle's model library. It reads the
// config.json whose model_type is hello; every strategy, tensor and context parallelism, and pipelines can
// train it.
#include "heddle/decoder/family.h"
#include "heddle/sdk.h"

namespace hello_plugin {

namespace decoder = heddle::decoder;

// The keys of config.json: those of most decoders with this family's defaults, and its own.
struct Keys : decoder::CommonKeys {
  Keys() {
    vocab_size = 256, hidden_size = 64, intermediate_size = 128, num_hidden_layers = 2;
    num_attention_heads = 4, num_key_value_heads = 2, head_dim = 16, max_position_embeddings = 1024;
  }
  double final_logit_softcapping = 30;
};

// Table, reader and writer of the keys in one.
heddle::model::ModelKeys<Keys> keys() {
  auto keys = decoder::common_keys<Keys>();
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "hello");
  keys.field("final_logit_softcapping", &Keys::final_logit_softcapping, "Cap of the logits; 0: none.",
             heddle::at_least(0.0));
  return keys;
}

// The layers, all alike; heddle/decoder/description.h lists what can be described.
decoder::Model model_of(const Keys& keys) {
  decoder::Norm norm = keys.norm();
  norm.kind = decoder::Norm::Kind::rms_plus_one;
  decoder::Mlp mlp = keys.mlp(decoder::Activation::gelu_tanh);
  mlp.gated = false;
  decoder::Model model = keys.model({keys.attention(), mlp, norm});
  model.last_norm = norm;
  model.logits_soft_cap = keys.final_logit_softcapping;
  return model;
}

// model_type, transformers' class, keys, layers; tensors of files have the names of parameters.
const decoder::Description<Keys>& hello() {
  static const decoder::Description<Keys> kHello = {"hello", "HelloForCausalLM", keys(), model_of};
  return kHello;
}

}  // namespace hello_plugin

HEDDLE_PLUGIN("hello", "0.1.0", "model hello") {
  using namespace hello_plugin;
  plugin.model<decoder::Family<hello>>("hello", hello().keys);
}
