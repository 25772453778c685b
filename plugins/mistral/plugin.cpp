// Mistral: Llama with a sliding window in all layers and an independent head width. Ministral 3: Mistral with
// queries that are scaled by position. Mistral 3: the text models of models with images. Mistral 4.
#include "files.h"
#include "heddle/decoder/text_family.h"
#include "heddle/sdk.h"
#include "mistral4.h"

namespace heddle::mistral {
namespace {

struct Keys : decoder::CommonKeys {
  std::string hidden_act = "silu";
  std::optional<int64_t> sliding_window;
};

struct MistralKeys : Keys {
  MistralKeys() {
    intermediate_size = 14336, num_key_value_heads = 8, max_position_embeddings = 131072;
    sliding_window = 4096;
  }
};

struct Ministral3Keys : Keys {
  Ministral3Keys() {
    vocab_size = 131072, intermediate_size = 14336, num_hidden_layers = 34, num_key_value_heads = 8;
    head_dim = 128, max_position_embeddings = 262144, rms_norm_eps = 1e-5, pad_token_id = 11;
    rotary = {.theta = 1e6, .query_beta = 0.1};
    rotary.scaling.kind = RotaryScaling::Kind::yarn;
    rotary.scaling.factor = 16, rotary.scaling.original_positions = 16384;
    rotary.scaling.mscale = rotary.scaling.mscale_all_dim = 1;
  }
};

template <class Own>
model::ModelKeys<Own> keys_of(const std::string& model_type, decoder::RotaryForm rotary) {
  auto keys = decoder::common_keys<Own>();
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, model_type, rotary);
  decoder::add_dropout(keys);
  keys.field("hidden_act", &Keys::hidden_act, "Activation function of the MLP.", decoder::activation_words())
      .field("sliding_window", &Keys::sliding_window,
             "Sliding-window size in tokens, including the current token. null: no window.", decoder::kSize);
  return keys;
}

template <class Own>
decoder::Model model_of(const Own& keys) {
  decoder::Attention attention = keys.attention();
  attention.options.window = keys.sliding_window.value_or(0);
  return keys.model({attention, keys.mlp(decoder::activation_of(keys.hidden_act)), keys.norm()});
}

const decoder::Description<MistralKeys>& mistral() {
  static const decoder::Description<MistralKeys> kMistral = {"mistral", "MistralForCausalLM",
                                                             keys_of<MistralKeys>("mistral", {}),
                                                             model_of<MistralKeys>, files_of_text()};
  return kMistral;
}

const decoder::Description<Ministral3Keys>& ministral3() {
  static const decoder::Description<Ministral3Keys> kMinistral3 = {
      "ministral3", "Ministral3ForCausalLM", keys_of<Ministral3Keys>("ministral3", {.scaled_queries = true}),
      model_of<Ministral3Keys>, files_of_text()};
  return kMinistral3;
}

}  // namespace
}  // namespace heddle::mistral

HEDDLE_PLUGIN("mistral", "0.1.0", "model mistral", "model ministral3", "model mistral3", "model mistral4") {
  using namespace heddle::mistral;
  namespace decoder = heddle::decoder;
  plugin.model<decoder::Family<mistral>>("mistral", mistral().keys);
  plugin.model<decoder::Family<ministral3>>("ministral3", ministral3().keys);
  plugin.model<decoder::Family<mistral4>>("mistral4", mistral4().keys);
  using Text = decoder::TextFamily<mistral, ministral3, mistral4>;
  plugin.model<Text>("mistral3", Text::table());
}
