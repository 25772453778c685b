// A model family: a decoder in the style of Gemma 2, described with heddle's model library. It reads a
// config.json whose model_type is hello. Every strategy, tensor and context parallelism, and pipelines can
// train it.
#include "heddle/decoder/family.h"
#include "heddle/sdk.h"

namespace hello_plugin {

namespace decoder = heddle::decoder;

// The keys of config.json: the common keys of decoders with this family's defaults, and a key of its own.
struct Keys : decoder::CommonKeys {
  Keys() {
    vocab_size = 256, hidden_size = 64, intermediate_size = 128, num_hidden_layers = 2;
    num_attention_heads = 4, num_key_value_heads = 2, head_dim = 16, max_position_embeddings = 1024;
  }
  double final_logit_softcapping = 30;
};

// Declares the keys, for the table, the reader and the writer.
heddle::model::ModelKeys<Keys> keys() {
  auto keys = decoder::common_keys<Keys>();
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "hello");
  keys.field("final_logit_softcapping", &Keys::final_logit_softcapping,
             "Soft cap of the logits. 0 disables it.", heddle::at_least(0.0));
  return keys;
}

// Returns the layers, which are all equal. heddle/decoder/description.h lists what can be described.
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

// model_type, class in transformers, keys, layers. Tensors in files have the names of parameters.
const decoder::Description<Keys>& hello() {
  static const decoder::Description<Keys> kHello = {"hello", "HelloForCausalLM", keys(), model_of};
  return kHello;
}

}  // namespace hello_plugin

HEDDLE_PLUGIN("hello", "0.1.0", "model hello") {
  using namespace hello_plugin;
  plugin.model<decoder::Family<hello>>("hello", hello().keys);
}
