// Phi-3 and Phi-4: Llama with one tensor for q, k and v, and one for gate and up.
#include "heddle/decoder/family.h"
#include "heddle/sdk.h"

namespace heddle::phi3 {
namespace {

struct Keys : decoder::CommonKeys {
  Keys() {
    vocab_size = 32064, hidden_size = 3072, intermediate_size = 8192;
    max_position_embeddings = 4096, rms_norm_eps = 1e-5, pad_token_id = 32000;
  }
  std::string hidden_act = "silu";
  std::optional<int64_t> sliding_window;
};

model::ModelKeys<Keys> keys() {
  auto keys = decoder::common_keys<Keys>();
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "phi3", {.partial = true});
  decoder::add_dropout(keys, {.residual = "resid_pdrop"});
  keys.unused("embd_pdrop", "Ignored, as in transformers.");
  keys.field("hidden_act", &Keys::hidden_act, "Activation function of the MLP.", decoder::activation_words())
      .field("sliding_window", &Keys::sliding_window,
             "Sliding-window size in tokens, including the current token.", decoder::kSize);
  return keys;
}

decoder::Model model_of(const Keys& keys) {
  decoder::Attention attention = keys.attention();
  attention.options.window = keys.sliding_window.value_or(0);
  return keys.model({attention, keys.mlp(decoder::activation_of(keys.hidden_act)), keys.norm()});
}

const decoder::Description<Keys>& phi3() {
  static const decoder::Description<Keys> kPhi3 = {
      "phi3", "Phi3ForCausalLM", keys(), model_of,
      decoder::Files()
          .joined("self_attn.qkv_proj", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
          .joined("mlp.gate_up_proj", {"mlp.gate_proj", "mlp.up_proj"})};
  return kPhi3;
}

}  // namespace
}  // namespace heddle::phi3

HEDDLE_PLUGIN("phi3", "0.1.0", "model phi3") {
  using namespace heddle::phi3;
  plugin.model<heddle::decoder::Family<phi3>>("phi3", phi3().keys);
}
