// A model family, described with heddle's model library. It reads a config.json whose model_type is
// hello_type. Every strategy, tensor and context parallelism, and pipelines can train it.
#include "heddle/config/field_types.h"
#include "heddle/decoder/family.h"
#include "heddle/sdk.h"

namespace hello_plugin {

namespace decoder = heddle::decoder;

// The keys of config.json: the common keys of decoders with this family's defaults, and its own keys.
struct Keys : decoder::CommonKeys {
  Keys() {
    vocab_size = 256, hidden_size = 64, intermediate_size = 128, num_hidden_layers = 2;
    num_attention_heads = 4, num_key_value_heads = 2, head_dim = 16, max_position_embeddings = 1024;
  }
  double attention_multiplier = 0.25, logits_scaling = 2;
};

// Declares the keys, for the table, the reader and the writer.
heddle::model::ModelKeys<Keys> keys() {
  auto keys = decoder::common_keys<Keys>();
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "hello_type");
  keys.field("attention_multiplier", &Keys::attention_multiplier, "Factor of the attention scores.",
             heddle::at_least(1e-30))
      .field("logits_scaling", &Keys::logits_scaling, "Divisor of the logits.", heddle::at_least(1e-30));
  return keys;
}

// Returns the layers: Llama's with two factors, as in Granite. heddle/decoder/description.h lists what can be
// described.
decoder::Model model_of(const Keys& keys) {
  decoder::Attention attention = keys.attention();
  attention.options.scale = keys.attention_multiplier;
  decoder::Model model = keys.model({attention, keys.mlp(), keys.norm()});
  model.logits_multiplier = 1 / keys.logits_scaling;
  return model;
}

// model_type, class in transformers, keys, layers. Tensors in files have the names of parameters.
const decoder::Description<Keys>& description() {
  static const decoder::Description<Keys> kDescription = {"hello_type", "HelloForCausalLM", keys(), model_of};
  return kDescription;
}

}  // namespace hello_plugin

HEDDLE_PLUGIN("hello", "0.1.0", "model hello_type") {
  using namespace hello_plugin;
  plugin.model<decoder::Family<description>>("hello_type", description().keys);
}
