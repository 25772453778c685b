// Nemotron-H and Nemotron-3: Mamba-2, attention without positions, MLPs and experts, one of them in a layer.
#include "heddle/sdk.h"
#include "keys.h"

namespace heddle::nemotron_h {
namespace {

void add_layer_keys(model::ModelKeys<Keys>& keys) {
  keys.field("hybrid_override_pattern", &Keys::hybrid_override_pattern,
             "A sign for each layer: M Mamba-2, * attention, - an MLP, E experts; null: by "
             "layers_block_type, else ME*-.")
      .field("layers_block_type", &Keys::layers_block_type,
             "The same as words: linear_attention, full_attention, mlp, moe.")
      .field("num_nextn_predict_layers", &Keys::num_nextn_predict_layers,
             "Multi-token prediction heads, which train with the model; 0: none.", Range<int64_t>{0, 64})
      .field("mtp_hybrid_override_pattern", &Keys::mtp_hybrid_override_pattern,
             "The layers of such a head; null: by mtp_layers_block_type, else *E.")
      .field("mtp_layers_block_type", &Keys::mtp_layers_block_type, "The same as words.")
      .field("mtp_use_repeated_layer", &Keys::mtp_use_repeated_layer,
             "All heads share their layers; with one head it changes nothing.")
      .field("mtp_loss_scaling_factor", &Keys::mtp_loss_scaling_factor,
             "Of the mean of the heads' losses; without heads it changes nothing.", at_least(0.0))
      .field("layer_norm_epsilon", &decoder::CommonKeys::rms_norm_eps, "Added under the root of each norm.",
             at_least(1e-38))
      .field("mlp_bias", &Keys::mlp_bias, "Biases of MLPs; refused in models with experts.")
      .field("rescale_prenorm_residual", &Keys::rescale_prenorm_residual,
             "First values of what is added to the hidden states are divided by the root of the layers.")
      .then(fill_patterns)
      .rule(complaint_of_patterns)
      .only("mlp_hidden_act", Node::text("relu2"), "Of MLPs and experts.")
      .only("hidden_dropout", Node::real(0), "Dropout is refused.")
      .only("attention_dropout", Node::real(0), "Dropout is refused.")
      .only("attention_bias", Node::boolean(false),
            "Biases of attention are refused: transformers has none here.")
      .only("residual_in_fp32", Node::boolean(false), "Hidden states have the model's dtype.")
      .only("sliding_window", Node(), "Windows are refused: transformers has none here.");
}

void add_mamba_keys(model::ModelKeys<Keys>& keys) {
  keys.field("mamba_num_heads", &Keys::mamba_num_heads, "Heads of Mamba-2.", decoder::kSize)
      .field("mamba_head_dim", &Keys::mamba_head_dim, "Width of a head.", decoder::kSize)
      .field("ssm_state_size", &Keys::ssm_state_size, "Rows of a head's state.", decoder::kSize)
      .field("n_groups", &Keys::n_groups, "Heads of a group share what is written and read.", decoder::kSize)
      .field("conv_kernel", &Keys::conv_kernel, "Tokens that the convolution sees.", Range<int64_t>{1, 1024})
      .field("use_bias", &Keys::use_bias, "Biases of in_proj and out_proj.")
      .field("use_conv_bias", &Keys::use_conv_bias, "Biases of the convolution.")
      .group(decoder::step_limit<Keys>())
      .only("mamba_hidden_act", Node::text("silu"), "Activation of the convolution.")
      .only("mamba_proj_bias", Node::boolean(false), "transformers reads use_bias alone.")
      .only("mamba_ssm_cache_dtype", Node::text("float32"), "States are fp32.")
      .only("time_step_min", Node::real(0.001), "First values are drawn for this alone.")
      .only("time_step_max", Node::real(0.1), "First values are drawn for this alone.")
      .only("time_step_floor", Node::real(0.0001), "First values are drawn for this alone.");
}

void add_expert_keys(model::ModelKeys<Keys>& keys) {
  decoder::add_mixture(keys, {.experts = "n_routed_experts",
                              .groups = "n_group",
                              .scale = "routed_scaling_factor",
                              .normalised = "norm_topk_prob",
                              .losses = false});
  keys.field("moe_shared_expert_intermediate_size", &Keys::moe_shared_expert_intermediate_size,
             "Width of the expert of every token.", decoder::kSize)
      .field("moe_latent_size", &Keys::moe_latent_size,
             "Experts compute with a product of so many numbers; null: with hidden states.", decoder::kSize)
      .rule(complaint_of_experts)
      .only("output_router_logits", Node::boolean(false), "There is no auxiliary loss, as in transformers.");
}

void add_unused(model::ModelKeys<Keys>& keys) {
  for (const char* key : {"rope_theta", "partial_rotary_factor", "rope_scaling", "rope_parameters"})
    keys.unused(key, "Attention has no rotation.");
  for (const char* key :
       {"chunk_size", "use_mamba_kernels", "num_logits_to_keep", "moe_shared_expert_overlap"})
    keys.unused(key, "It changes no number.");
  keys.unused("norm_eps", "layer_norm_epsilon acts.")
      .unused("expand", "mamba_num_heads and mamba_head_dim act.")
      .unused("n_shared_experts", "moe_shared_expert_intermediate_size acts.");
}

model::ModelKeys<Keys> keys() {
  auto keys = decoder::common_keys<Keys>({.padding = false});
  decoder::add_head_dim(keys);
  add_layer_keys(keys);
  add_mamba_keys(keys);
  add_expert_keys(keys);
  add_unused(keys);
  return keys;
}

// Layers have one norm and one mixer in files, whatever it is.
decoder::Files files_of(const Keys& keys) {
  const std::string in = "mamba.in_proj_";
  decoder::Files files;
  files.joined("mamba.in_proj", {in + "z", in + "x", in + "b", in + "c", in + "dt"})
      .joined("mamba.conv1d", {"mamba.x_conv1d", "mamba.b_conv1d", "mamba.c_conv1d"})
      .renamed("input_layernorm", "norm")
      .renamed("post_attention_layernorm", "norm");
  for (const char* part : {"mamba", "self_attn", "mlp"}) files.renamed(part, "mixer");
  files.renamed("model.embed_tokens", "backbone.embeddings")
      .renamed("model.norm", "backbone.norm_f")
      .renamed("model.layers", "backbone.layers")
      .otherwise("backbone.", "model.");
  if (keys.num_nextn_predict_layers == 0) files.ignored_module("mtp");
  return files;
}

const decoder::Description<Keys>& nemotron_h() {
  static const decoder::Description<Keys> kNemotron = {
      "nemotron_h", "NemotronHForCausalLM", keys(), model_of, {}, files_of, benchmark};
  return kNemotron;
}

}  // namespace
}  // namespace heddle::nemotron_h

HEDDLE_PLUGIN("nemotron_h", "0.1.0", "model nemotron_h") {
  using namespace heddle::nemotron_h;
  plugin.model<heddle::decoder::Family<nemotron_h>>("nemotron_h", nemotron_h().keys);
}
