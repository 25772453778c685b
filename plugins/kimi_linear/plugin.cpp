// Kimi Linear: Kimi Delta Attention, latent attention without positions, and experts.
#include "heddle/sdk.h"
#include "keys.h"

namespace heddle::kimi_linear {
namespace {

void add_attention_keys(model::ModelKeys<Keys>& keys) {
  keys.field("q_lora_rank", &Keys::q_lora_rank,
             "Width of the queries' latent; null: queries are one product.", decoder::kSize)
      .field("kv_lora_rank", &Keys::kv_lora_rank, "Width of the latent of keys and values.", decoder::kSize)
      .field("qk_nope_head_dim", &Keys::qk_nope_head_dim, "Numbers of a head of keys that are its own.",
             decoder::kSize)
      .field("qk_rope_head_dim", &Keys::qk_rope_head_dim,
             "Numbers that all heads of keys share; they have no position.", decoder::kSize)
      .field("v_head_dim", &Keys::v_head_dim, "Width of a head of values.", decoder::kSize)
      .field("attention_bias", &Keys::attention_bias, "Biases of q_a, kv_a and o.")
      .field("linear_head_dim", &Keys::linear_head_dim, "Of delta attention: width of a head.",
             decoder::kSize)
      .field("linear_num_heads", &Keys::linear_num_heads, "Its heads.", decoder::kSize)
      .field("linear_conv_kernel_dim", &Keys::linear_conv_kernel_dim, "Tokens that its convolutions see.",
             Range<int64_t>{1, 1024})
      .field("layer_types", &Keys::layer_types,
             "linear_attention or full_attention for each layer; null: by linear_attn_config, else "
             "full_attention "
             "in the layers 4, 8, ..., counted from 0.")
      .rule(complaint_of_attention)
      .only("hidden_act", Node::text("silu"), "Activation of MLPs, experts and convolutions.")
      .only("attention_dropout", Node::real(0), "Dropout is refused.")
      .only("mla_use_nope", Node::boolean(true), "Latent attention with positions is refused.")
      .only("kda_use_qk_l2norm_in_kernel", Node::boolean(true),
            "Queries and keys are divided by their lengths.");
}

void add_expert_keys(model::ModelKeys<Keys>& keys) {
  keys.field("mlp_layer_types", &Keys::mlp_layer_types,
             "dense or sparse for each layer; null: by first_k_dense_replace.")
      .field("first_k_dense_replace", &Keys::first_k_dense_replace, "Layers before this one have no experts.",
             Range<int64_t>{0, model::kMostLayers})
      .field("num_experts", &Keys::num_experts, "Experts of a layer.", Range<int64_t>{1, 65536})
      .field("num_experts_per_token", &Keys::num_experts_per_token, "Experts of a token.", decoder::kSize)
      .field("num_shared_experts", &Keys::num_shared_experts,
             "Experts of every token, as one of so many times the width.", Range<int64_t>{0, 65536})
      .field("moe_intermediate_size", &Keys::moe_intermediate_size, "Width of an expert.", decoder::kSize)
      .field("num_expert_group", &Keys::num_expert_group, "Groups of experts.", decoder::kSize)
      .field("topk_group", &Keys::topk_group, "A token's experts are in so many of the groups.",
             decoder::kSize)
      .field("routed_scaling_factor", &Keys::routed_scaling_factor, "Of the weights of a token's experts.",
             at_least(0.0))
      .field("moe_renormalize", &Keys::moe_renormalize, "The weights of a token's experts sum to 1.")
      .field("fake_balanced_gate", &Keys::fake_balanced_gate, "For benchmarks: experts in turn.")
      .then(fill)
      .only("moe_router_activation_func", Node::text("sigmoid"), "Scores of the router.")
      .only("moe_layer_freq", Node::integer(1), "transformers does not read it.")
      .only("num_nextn_predict_layers", Node::integer(0), "Multi-token prediction heads are not built here.");
}

model::ModelKeys<Keys> keys() {
  auto keys = decoder::common_keys<Keys>({.latent = true});
  decoder::add_rms_norm(keys);
  add_attention_keys(keys);
  add_expert_keys(keys);
  keys.group(linear_attention()).group(other_names());
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters"})
    keys.unused(key, "Attention has no rotation.");
  for (const char* key : {"kda_mode", "kda_unpad_inputs", "kda_use_fused_gate"})
    keys.unused(key, "It changes no number.");
  keys.unused("head_dim", "The sizes of heads are those above.")
      .unused("qk_head_dim", "The sum of the two.")
      .unused("use_grouped_topk", "num_expert_group acts.")
      .unused("router_dtype", "The router's product is fp32.")
      .unused("output_router_logits", "There is no auxiliary loss, as in transformers.");
  return keys;
}

// As published. transformers writes MLPs of dense layers under the name of the experts.
decoder::Files files_of(const Keys& keys) {
  decoder::ExpertFiles experts;
  experts.layer = "block_sparse_moe";
  experts.gate = "w1", experts.up = "w3", experts.down = "w2";
  decoder::Files files;
  files.experts(experts)
      .widened("linear_attn.A_log", 2, 1)
      .renamed("linear_attn", "self_attn")
      .renamed("mlp.shared_experts", "block_sparse_moe.shared_experts");
  for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer) {
    const std::string place = "model.layers." + std::to_string(layer) + ".";
    if ((*keys.mlp_layer_types)[static_cast<size_t>(layer)] == "dense")
      files.otherwise(place + "mlp.", place + "block_sparse_moe.");
  }
  return files;
}

const decoder::Description<Keys>& kimi_linear() {
  static const decoder::Description<Keys> kKimi = {
      "kimi_linear", "KimiLinearForCausalLM", keys(), model_of, {}, files_of};
  return kKimi;
}

}  // namespace
}  // namespace heddle::kimi_linear

HEDDLE_PLUGIN("kimi_linear", "0.1.0", "model kimi_linear") {
  using namespace heddle::kimi_linear;
  plugin.model<heddle::decoder::Family<kimi_linear>>("kimi_linear", kimi_linear().keys);
}
