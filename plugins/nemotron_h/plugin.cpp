// Nemotron-H and Nemotron-3: each layer is Mamba-2, attention without rotation, an MLP or experts.
#include "heddle/sdk.h"
#include "keys.h"

namespace heddle::nemotron_h {
namespace {

void add_layer_keys(model::ModelKeys<Keys>& keys) {
  keys.field("hybrid_override_pattern", &Keys::hybrid_override_pattern,
             "One letter per layer: M (Mamba-2), * (attention), - (an MLP) or E (experts). null: derived "
             "from layers_block_type, else ME*-.")
      .field("layers_block_type", &Keys::layers_block_type,
             "hybrid_override_pattern as a list of words: linear_attention, full_attention, mlp or moe.")
      .field("num_nextn_predict_layers", &Keys::num_nextn_predict_layers,
             "Number of multi-token prediction heads, which train with the model. 0: none.",
             Range<int64_t>{0, 64})
      .field("mtp_hybrid_override_pattern", &Keys::mtp_hybrid_override_pattern,
             "Layers of a multi-token prediction head, one letter per layer. null: derived from "
             "mtp_layers_block_type, else *E.")
      .field("mtp_layers_block_type", &Keys::mtp_layers_block_type,
             "mtp_hybrid_override_pattern as a list of words.")
      .field("mtp_use_repeated_layer", &Keys::mtp_use_repeated_layer,
             "Share the layers among all multi-token prediction heads. No effect with fewer than two heads.")
      .field("mtp_loss_scaling_factor", &Keys::mtp_loss_scaling_factor,
             "Weight of the mean loss of the multi-token prediction heads.", at_least(0.0))
      .field("layer_norm_epsilon", &decoder::CommonKeys::rms_norm_eps,
             "Epsilon added to the variance in each norm.", at_least(1e-38))
      .field("mlp_bias", &Keys::mlp_bias, "Whether MLPs have biases. Not supported in models with experts.")
      .field("rescale_prenorm_residual", &Keys::rescale_prenorm_residual,
             "Divide the initial values of the layers' output projections by the square root of the number "
             "of layers.")
      .then(fill_patterns)
      .rule(complaint_of_patterns)
      .only("mlp_hidden_act", Node::text("relu2"), "Activation function of MLPs and experts.")
      .only("hidden_dropout", Node::real(0), "Dropout is not supported.")
      .only("attention_dropout", Node::real(0), "Attention dropout is not supported.")
      .only("attention_bias", Node::boolean(false), "Attention biases are not supported by transformers.")
      .only("residual_in_fp32", Node::boolean(false), "Hidden states have the model's dtype.")
      .only("sliding_window", Node(), "Sliding windows are not supported by transformers.");
}

void add_mamba_keys(model::ModelKeys<Keys>& keys) {
  keys.field("mamba_num_heads", &Keys::mamba_num_heads, "Number of Mamba-2 heads.", decoder::kSize)
      .field("mamba_head_dim", &Keys::mamba_head_dim, "Head width of Mamba-2.", decoder::kSize)
      .field("ssm_state_size", &Keys::ssm_state_size, "State size of a head.", decoder::kSize)
      .field("n_groups", &Keys::n_groups, "Number of head groups. The heads of a group share B and C.",
             decoder::kSize)
      .field("conv_kernel", &Keys::conv_kernel, "Kernel size of the convolution in tokens.",
             Range<int64_t>{1, 1024})
      .field("use_bias", &Keys::use_bias, "Whether in_proj and out_proj have biases.")
      .field("use_conv_bias", &Keys::use_conv_bias, "Whether the convolution has a bias.")
      .group(decoder::step_limit<Keys>())
      .only("mamba_hidden_act", Node::text("silu"), "Activation function of the convolution.")
      .only("mamba_proj_bias", Node::boolean(false), "transformers reads use_bias instead.")
      .only("mamba_ssm_cache_dtype", Node::text("float32"), "States are always fp32.")
      .only("time_step_min", Node::real(0.001), "Affects only the initial values.")
      .only("time_step_max", Node::real(0.1), "Affects only the initial values.")
      .only("time_step_floor", Node::real(0.0001), "Affects only the initial values.");
}

void add_expert_keys(model::ModelKeys<Keys>& keys) {
  decoder::add_mixture(keys, {.experts = "n_routed_experts",
                              .groups = "n_group",
                              .scale = "routed_scaling_factor",
                              .normalised = "norm_topk_prob",
                              .losses = false});
  keys.field("moe_shared_expert_intermediate_size", &Keys::moe_shared_expert_intermediate_size,
             "Width of the shared expert.", decoder::kSize)
      .field("moe_latent_size", &Keys::moe_latent_size,
             "Width of the latent space in which experts compute. null: they compute on the hidden states.",
             decoder::kSize)
      .rule(complaint_of_experts)
      .only("output_router_logits", Node::boolean(false), "There is no auxiliary loss, as in transformers.");
}

void add_unused(model::ModelKeys<Keys>& keys) {
  for (const char* key : {"rope_theta", "partial_rotary_factor", "rope_scaling", "rope_parameters"})
    keys.unused(key, "Attention has no rotation.");
  for (const char* key :
       {"chunk_size", "use_mamba_kernels", "num_logits_to_keep", "moe_shared_expert_overlap"})
    keys.unused(key, "No effect on results.");
  keys.unused("norm_eps", "layer_norm_epsilon is used instead.")
      .unused("expand", "mamba_num_heads and mamba_head_dim are used instead.")
      .unused("n_shared_experts", "moe_shared_expert_intermediate_size is used instead.");
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

// In files every layer has one norm and one mixer, whatever the type of the layer.
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
