// DeepSeek-V4: attention over a window and compressed entries, several residual streams, and experts.
#include "heddle/sdk.h"
#include "keys.h"

namespace heddle::deepseek_v4 {
namespace {

void add_attention_keys(model::ModelKeys<Keys>& keys) {
  keys.field("q_lora_rank", &Keys::q_lora_rank, "Rank of the low-rank query projection.", decoder::kSize)
      .field("o_groups", &Keys::o_groups, "Number of head groups, each with an output projection.",
             decoder::kSize)
      .field("o_lora_rank", &Keys::o_lora_rank, "Rank of each group's output projection.", decoder::kSize)
      .field("sliding_window", &Keys::sliding_window,
             "Sliding-window size in tokens, including the current token.", decoder::kSize)
      .field("index_n_heads", &Keys::index_n_heads, "Number of indexer heads in sparse layers.",
             decoder::kSize)
      .field("index_head_dim", &Keys::index_head_dim, "Width of an indexer head.", decoder::kSize)
      .field("index_topk", &Keys::index_topk,
             "Number of compressed entries that a token of a sparse layer attends to.", decoder::kSize)
      .field("hc_mult", &Keys::hc_mult, "Number of residual streams (hyper-connections).",
             Range<int64_t>{1, 64})
      .field("hc_sinkhorn_iters", &Keys::hc_sinkhorn_iters,
             "Number of Sinkhorn iterations on the matrix that mixes the residual streams.",
             Range<int64_t>{1, 1000})
      .field("hc_eps", &Keys::hc_eps,
             "Epsilon added to the weights of the residual streams and to their normalizing sums.",
             at_least(0.0))
      .only("attention_bias", Node::boolean(false), "Not supported by transformers.")
      .only("attention_dropout", Node::real(0), "Attention dropout is not supported.");
}

void add_expert_keys(model::ModelKeys<Keys>& keys) {
  decoder::add_mixture(keys, {.experts = "n_routed_experts",
                              .experts_of_token = nullptr,
                              .width = nullptr,
                              .scale = "routed_scaling_factor",
                              .losses = false});
  keys.field("moe_intermediate_size", &Keys::moe_intermediate_size,
             "Width of the routed experts and of the shared expert. null: intermediate_size.", decoder::kSize)
      .field("num_experts_per_tok", &Keys::experts_of_token,
             "Number of experts per token. At least 2, because transformers fixes the weight of a single "
             "expert at 1.",
             Range<int64_t>{2, 65536})
      .field("scoring_func", &Keys::scoring_func, "Function that converts router logits to scores.",
             OneOf{{"sqrtsoftplus", "sigmoid"}})
      .field("swiglu_limit", &Keys::swiglu_limit,
             "Limit of the SwiGLU inputs in all experts: gate values are clamped from above, up values on "
             "both sides.",
             at_least(1e-6))
      .then(fill)
      .rule(complaint)
      .only("hidden_act", Node::text("silu"), "Activation function of the experts.")
      .only("mlp_bias", Node::boolean(false), "Expert biases are not supported.")
      .only("n_shared_experts", Node::integer(1), "transformers has one shared expert.")
      .only("norm_topk_prob", Node::boolean(true), "The routing weights of a token always sum to 1.")
      .only("output_router_logits", Node::boolean(false), "The auxiliary loss of transformers is not built.")
      .only("router_jitter_noise", Node::real(0), "Not read by transformers.")
      .unused("router_aux_loss_coef", "Only used with output_router_logits.");
}

model::ModelKeys<Keys> keys() {
  auto keys = decoder::common_keys<Keys>({.mlp = "Alias of moe_intermediate_size.", .one_key_head = true});
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  add_attention_keys(keys);
  add_expert_keys(keys);
  keys.group(other_names()).group(layer_keys()).group(rotary_keys());
  keys.unused("num_nextn_predict_layers",
              "Multi-token prediction layers in checkpoint files are not trained.")
      .unused("topk_method", "Experts have no groups.")
      .unused("expert_dtype",
              "Dtype of experts in published files. Experts compute in the dtype of the model.")
      .unused("pretraining_tp", "No effect on results.");
  return keys;
}

using Renamed = std::pair<const char*, const char*>;

// Names in published files. Longer names come first.
constexpr Renamed kRenamed[] = {
    {"self_attn.compressor.indexer.kv_proj", "attn.indexer.compressor.wkv"},
    {"self_attn.compressor.indexer.gate_proj", "attn.indexer.compressor.wgate"},
    {"self_attn.compressor.indexer.position_bias", "attn.indexer.compressor.ape"},
    {"self_attn.compressor.indexer.kv_norm", "attn.indexer.compressor.norm"},
    {"self_attn.compressor.indexer.q_b_proj", "attn.indexer.wq_b"},
    {"self_attn.compressor.indexer.scorer.weights_proj", "attn.indexer.weights_proj"},
    {"self_attn.compressor.kv_proj", "attn.compressor.wkv"},
    {"self_attn.compressor.gate_proj", "attn.compressor.wgate"},
    {"self_attn.compressor.position_bias", "attn.compressor.ape"},
    {"self_attn.compressor.kv_norm", "attn.compressor.norm"},
    {"self_attn.q_a_proj", "attn.wq_a"},
    {"self_attn.q_a_norm", "attn.q_norm"},
    {"self_attn.q_b_proj", "attn.wq_b"},
    {"self_attn.kv_proj", "attn.wkv"},
    {"self_attn.kv_norm", "attn.kv_norm"},
    {"self_attn.o_a_proj", "attn.wo_a"},
    {"self_attn.o_b_proj", "attn.wo_b"},
    {"self_attn.sinks", "attn.attn_sink"},
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"attn_hc.fn", "hc_attn_fn"},
    {"attn_hc.base", "hc_attn_base"},
    {"attn_hc.scale", "hc_attn_scale"},
    {"ffn_hc.fn", "hc_ffn_fn"},
    {"ffn_hc.base", "hc_ffn_base"},
    {"ffn_hc.scale", "hc_ffn_scale"},
    {"mlp.shared_experts.gate_proj", "ffn.shared_experts.w1"},
    {"mlp.shared_experts.up_proj", "ffn.shared_experts.w3"},
    {"mlp.shared_experts.down_proj", "ffn.shared_experts.w2"},
    {"mlp.gate.tid2eid", "ffn.gate.tid2eid"},
    {"model.hc_head.hc_fn", "hc_head_fn"},
    {"model.hc_head.hc_base", "hc_head_base"},
    {"model.hc_head.hc_scale", "hc_head_scale"},
    {"model.layers", "layers"},
    {"model.embed_tokens", "embed"},
    {"model.norm", "norm"},
    {"lm_head", "head"}};

// transformers writes some names differently, with the prefix of its base model.
decoder::Files files_of(const Keys& keys) {
  decoder::ExpertFiles experts;
  experts.layer = "ffn";
  experts.gate = "w1", experts.up = "w3", experts.down = "w2";
  experts.correction = "gate.bias";
  decoder::Files files;
  files.experts(experts).ignored_module("mtp");
  for (const auto& [name, in_files] : kRenamed) files.renamed(name, in_files);
  for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer) {
    const std::string place = "layers." + std::to_string(layer) + ".";
    files.otherwise(place + "attn.kv_norm.", "model." + place + "attn.norm.");
  }
  files.otherwise("layers.", "model.layers.")
      .otherwise("embed.", "model.embed_tokens.")
      .otherwise("norm.", "model.norm.")
      .otherwise("hc_head_", "model.hc_head.hc_");
  return files;
}

const decoder::Description<Keys>& deepseek_v4() {
  static const decoder::Description<Keys> kDeepseek = {
      "deepseek_v4", "DeepseekV4ForCausalLM", keys(), model_of, {}, files_of};
  return kDeepseek;
}

}  // namespace
}  // namespace heddle::deepseek_v4

HEDDLE_PLUGIN("deepseek_v4", "0.1.0", "model deepseek_v4") {
  using namespace heddle::deepseek_v4;
  plugin.model<heddle::decoder::Family<deepseek_v4>>("deepseek_v4", deepseek_v4().keys);
}
