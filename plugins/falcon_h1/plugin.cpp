// Falcon-H1: attention and Mamba-2 in parallel in every layer, with multipliers.
#include "heddle/sdk.h"
#include "keys.h"

namespace heddle::falcon_h1 {
namespace {

void add_mamba_keys(model::ModelKeys<Keys>& keys) {
  keys.field("mamba_d_ssm", &Keys::mamba_d_ssm,
             "Inner size of Mamba-2, all heads together. null: mamba_expand * hidden_size.", decoder::kSize)
      .field("mamba_expand", &Keys::mamba_expand,
             "Inner size of Mamba-2 as a multiple of hidden_size. Used if mamba_d_ssm is null.",
             Range<int64_t>{1, 1024})
      .field("mamba_n_heads", &Keys::mamba_n_heads, "Number of Mamba-2 heads.", decoder::kSize)
      .field("mamba_n_groups", &Keys::mamba_n_groups,
             "Number of head groups. The heads of a group share B and C.", decoder::kSize)
      .field("mamba_d_state", &Keys::mamba_d_state, "State size of a head.", decoder::kSize)
      .field("mamba_d_conv", &Keys::mamba_d_conv, "Kernel size of the convolution in tokens.",
             Range<int64_t>{1, 1024})
      .field("mamba_conv_bias", &Keys::mamba_conv_bias, "Whether the convolution has a bias.")
      .field("mamba_proj_bias", &Keys::mamba_proj_bias, "Whether in_proj has a bias.")
      .field("projectors_bias", &Keys::projectors_bias, "Whether out_proj has a bias.")
      .field("mamba_rms_norm", &Keys::mamba_rms_norm,
             "Apply an RMS norm over the heads of a group to the output.")
      .field("mamba_norm_before_gate", &Keys::mamba_norm_before_gate,
             "Apply the norm before the gate. No effect without mamba_rms_norm.")
      .then(fill)
      .rule(complaint_of_mamba)
      .group(head_width())
      .group(decoder::step_limit<Keys>());
}

void add_multipliers(model::ModelKeys<Keys>& keys) {
  keys.field("embedding_multiplier", &Keys::embedding_multiplier, "Factor of the embeddings.")
      .field("lm_head_multiplier", &Keys::lm_head_multiplier, "Factor of the logits.")
      .field("key_multiplier", &Keys::key_multiplier, "Factor of the attention keys.", at_least(1e-38))
      .field("attention_in_multiplier", &Keys::attention_in_multiplier, "Factor of attention's input.")
      .field("attention_out_multiplier", &Keys::attention_out_multiplier, "Factor of attention's output.")
      .field("ssm_in_multiplier", &Keys::ssm_in_multiplier, "Factor of Mamba-2's input.")
      .field("ssm_out_multiplier", &Keys::ssm_out_multiplier, "Factor of Mamba-2's output.")
      .field("ssm_multipliers", &Keys::ssm_multipliers,
             "Factors of the five parts of in_proj: gate, input, B, C and time step. null: 1.")
      .field("mlp_multipliers", &Keys::mlp_multipliers,
             "Factors of gate_proj(x) and of the MLP's output. null: 1.")
      .rule(complaint_of_multipliers);
}

model::ModelKeys<Keys> keys() {
  auto keys = decoder::common_keys<Keys>();
  decoder::add_head_dim(keys, /*written=*/true);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "falcon_h1");
  keys.field("attention_bias", &Keys::attention_bias, "Whether q, k, v and o have biases.")
      .field("mlp_bias", &Keys::mlp_bias, "Whether the MLP has biases.");
  add_mamba_keys(keys);
  add_multipliers(keys);
  keys.only("hidden_act", Node::text("silu"), "Activation function of the MLPs and convolutions.")
      .only("attention_dropout", Node::real(0), "Attention dropout is not supported.");
  for (const char* key : {"mamba_chunk_size", "num_logits_to_keep", "mamba_use_mlp", "use_mamba_kernels"})
    keys.unused(key, "No effect on results.");
  for (const char* key : {"time_step_min", "time_step_max", "time_step_floor"})
    keys.unused(key, "Only time_step_limit is used.");
  keys.unused("mlp_expansion_factor", "Only intermediate_size is used.")
      .unused("attn_layer_indices", "Every layer has attention.");
  return keys;
}

decoder::Files files() {
  const std::string in = "mamba.in_proj_";
  return decoder::Files()
      .joined("mamba.in_proj", {in + "z", in + "x", in + "b", in + "c", in + "dt"})
      .joined("mamba.conv1d", {"mamba.x_conv1d", "mamba.b_conv1d", "mamba.c_conv1d"})
      .renamed("post_attention_layernorm", "pre_ff_layernorm")
      .renamed("mlp", "feed_forward")
      .renamed("model.norm", "model.final_layernorm");
}

const decoder::Description<Keys>& falcon_h1() {
  static const decoder::Description<Keys> kFalcon = {"falcon_h1", "FalconH1ForCausalLM", keys(), model_of,
                                                     files()};
  return kFalcon;
}

}  // namespace
}  // namespace heddle::falcon_h1

HEDDLE_PLUGIN("falcon_h1", "0.1.0", "model falcon_h1") {
  using namespace heddle::falcon_h1;
  plugin.model<heddle::decoder::Family<falcon_h1>>("falcon_h1", falcon_h1().keys);
}
