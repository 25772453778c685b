// Gemma and Gemma 2: norms that multiply by 1 + weight, and scaled embeddings. Gemma 2 adds soft caps, norms
// before and after attention and MLP, and a sliding window in every second layer.
#include <cmath>

#include "families.h"
#include "heddle/decoder/family.h"
#include "heddle/sdk.h"

namespace heddle::gemma {
namespace {

// Keys of both models, with the defaults of Gemma.
struct GemmaKeys : decoder::CommonKeys {
  GemmaKeys() {
    vocab_size = 256000, hidden_size = 3072, intermediate_size = 24576;
    num_hidden_layers = 28, num_attention_heads = 16, head_dim = 256;
    max_position_embeddings = 8192, tie_word_embeddings = true, pad_token_id = 0;
  }
  bool attention_bias = false;
  std::string activation = "gelu_pytorch_tanh";  // the older "gelu" means the same
};

struct Gemma2Keys : GemmaKeys {
  Gemma2Keys() {
    hidden_size = 2304, intermediate_size = 9216;
    num_hidden_layers = 26, num_attention_heads = 8, num_key_value_heads = 4;
  }
  int64_t query_pre_attn_scalar = 256;
  std::optional<int64_t> sliding_window = 4096;
  std::optional<std::vector<std::string>> layer_types;
  std::optional<double> attn_logit_softcapping = 50.0, final_logit_softcapping = 30.0;

  bool slides(int64_t layer) const {
    return layer_types ? (*layer_types)[static_cast<size_t>(layer)] == decoder::kSlidingAttention
                       : layer % 2 == 0;
  }
};

template <class Keys>
model::ModelKeys<Keys> common(const std::string& model_type, const std::string& activation) {
  auto keys = decoder::common_keys<Keys>();
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, model_type);
  decoder::add_dropout(keys);
  keys.field("attention_bias", &GemmaKeys::attention_bias, "Whether q, k, v and o have biases.")
      .field(activation, &GemmaKeys::activation,
             "Activation function of the MLP. No effect, because both values select the tanh approximation "
             "of GELU.",
             OneOf{{"gelu_pytorch_tanh", "gelu"}})
      .only("use_bidirectional_attention", Node(), "Only causal attention is built.");
  return keys;
}

model::ModelKeys<GemmaKeys> keys_of_gemma() {
  auto keys = common<GemmaKeys>("gemma", "hidden_act");
  keys.unused("hidden_activation", "hidden_act is used instead.");
  return keys;
}

model::ModelKeys<Gemma2Keys> keys_of_gemma2() {
  auto keys = common<Gemma2Keys>("gemma2", "hidden_activation");
  keys.field("query_pre_attn_scalar", &Gemma2Keys::query_pre_attn_scalar,
             "Attention scores are divided by the square root of this number.", decoder::kSize)
      .field("sliding_window", &Gemma2Keys::sliding_window,
             "Size of the window of sliding_attention layers in tokens, including the current token.",
             decoder::kSize)
      .field("layer_types", &Gemma2Keys::layer_types,
             "Type of each layer: full_attention or sliding_attention. null: they alternate, beginning with "
             "sliding_attention.")
      .field("attn_logit_softcapping", &Gemma2Keys::attn_logit_softcapping,
             "Soft cap of the attention scores: cap * tanh(score / cap). null: no cap.", at_least(1e-30))
      .field("final_logit_softcapping", &Gemma2Keys::final_logit_softcapping,
             "Soft cap of the logits, with the same formula.", at_least(1e-30))
      .unused("hidden_act", "hidden_activation is used instead.")
      .rule([](const Gemma2Keys& given) {
        return decoder::complaint_of_layer_types(given.layer_types, given.num_hidden_layers);
      });
  return keys;
}

// Returns the model without its layers.
decoder::Model model_of(const GemmaKeys& keys) {
  decoder::Model model = keys.model();
  model.last_norm.kind = decoder::Norm::Kind::rms_plus_one;
  model.embedding_multiplier = std::sqrt(static_cast<double>(keys.hidden_size));
  return model;
}

decoder::Layer layer_of(const GemmaKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = attention.output_bias = keys.attention_bias;
  decoder::Norm norm = keys.norm();
  norm.kind = decoder::Norm::Kind::rms_plus_one;
  return {attention, keys.mlp(decoder::Activation::gelu_tanh), norm};
}

decoder::Model gemma_model(const GemmaKeys& keys) {
  decoder::Model model = model_of(keys);
  model.layers.assign(static_cast<size_t>(keys.num_hidden_layers), layer_of(keys));
  return model;
}

decoder::Model gemma2_model(const Gemma2Keys& keys) {
  decoder::Model model = model_of(keys);
  model.logits_soft_cap = keys.final_logit_softcapping.value_or(0);
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Layer layer = layer_of(keys);
    layer.order = decoder::Layer::Order::both;
    auto& options = std::get<decoder::Attention>(layer.mixer).options;
    options.scale = 1 / std::sqrt(static_cast<double>(keys.query_pre_attn_scalar));
    options.soft_cap = keys.attn_logit_softcapping.value_or(0);
    if (keys.slides(i)) options.window = keys.sliding_window.value_or(0);
    model.layers.push_back(std::move(layer));
  }
  return model;
}

const decoder::Description<GemmaKeys>& gemma() {
  static const decoder::Description<GemmaKeys> kGemma = {"gemma", "GemmaForCausalLM", keys_of_gemma(),
                                                         gemma_model};
  return kGemma;
}

const decoder::Description<Gemma2Keys>& gemma2() {
  static const decoder::Description<Gemma2Keys> kGemma2 = {"gemma2", "Gemma2ForCausalLM", keys_of_gemma2(),
                                                           gemma2_model};
  return kGemma2;
}

}  // namespace
}  // namespace heddle::gemma

HEDDLE_PLUGIN("gemma", "0.1.0", "model gemma", "model gemma2", "model gemma3", "model gemma3_text",
              "model gemma4", "model gemma4_text", "model gemma4_unified", "model gemma4_unified_text") {
  using namespace heddle::gemma;
  plugin.model<heddle::decoder::Family<gemma>>("gemma", gemma().keys);
  plugin.model<heddle::decoder::Family<gemma2>>("gemma2", gemma2().keys);
  offer_gemma3(plugin);
  offer_gemma4(plugin);
}
