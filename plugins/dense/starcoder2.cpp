// StarCoder 2: layer norms and linear layers with biases, a plain MLP, and sliding-window attention in all
// layers.
#include "families.h"
#include "heddle/decoder/family.h"

namespace heddle::dense {
namespace {

struct Starcoder2Keys : decoder::CommonKeys {
  Starcoder2Keys() {
    vocab_size = 49152, hidden_size = 3072, intermediate_size = 12288, num_hidden_layers = 30;
    num_attention_heads = 24, num_key_value_heads = 2, max_position_embeddings = 4096;
    initializer_range = 0.018042, rms_norm_eps = 1e-5, tie_word_embeddings = true;
  }
  std::string hidden_act = "gelu_pytorch_tanh";
  bool use_bias = true;
  std::optional<int64_t> sliding_window;
};

model::ModelKeys<Starcoder2Keys> starcoder2_keys() {
  auto keys = decoder::common_keys<Starcoder2Keys>();
  decoder::add_rotary(keys, "starcoder2");
  keys.field("norm_epsilon", &decoder::CommonKeys::rms_norm_eps,
             "Epsilon added to the variance in each norm.", at_least(1e-38))
      .field("hidden_act", &Starcoder2Keys::hidden_act, "Activation function of the MLP.",
             decoder::activation_words())
      .field("use_bias", &Starcoder2Keys::use_bias, "Whether attention and MLP have biases.")
      .field("sliding_window", &Starcoder2Keys::sliding_window,
             "Sliding-window size in tokens, including the current token. No effect if it is at least the "
             "sequence length.",
             decoder::kSize);
  decoder::add_dropout(keys, {.residual = "residual_dropout", .embedding = "embedding_dropout"});
  return keys;
}

decoder::Model starcoder2_model(const Starcoder2Keys& keys) {
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = attention.output_bias = keys.use_bias;
  attention.options.window = keys.sliding_window.value_or(0);
  decoder::Mlp mlp = keys.mlp(decoder::activation_of(keys.hidden_act));
  mlp.gated = false, mlp.bias = keys.use_bias;
  const decoder::Norm norm{decoder::Norm::Kind::layer, keys.rms_norm_eps, true};
  decoder::Model model = keys.model({attention, mlp, norm});
  model.last_norm = norm;
  return model;
}

const decoder::Description<Starcoder2Keys>& starcoder2() {
  static const decoder::Description<Starcoder2Keys> kStarcoder2 = {
      "starcoder2", "Starcoder2ForCausalLM", starcoder2_keys(), starcoder2_model,
      decoder::Files().renamed("mlp.up_proj", "mlp.c_fc").renamed("mlp.down_proj", "mlp.c_proj")};
  return kStarcoder2;
}

}  // namespace

void offer_starcoder2(Offer& plugin) {
  plugin.model<decoder::Family<starcoder2>>("starcoder2", starcoder2().keys);
}

}  // namespace heddle::dense
