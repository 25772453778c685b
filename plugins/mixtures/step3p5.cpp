// Step-3.5: heads, windows and rotary embeddings per layer, a gate per head, clamped gates per layer.
#include <cmath>

#include "families.h"
#include "heddle/decoder/benchmark.h"
#include "step3p5_keys.h"

namespace heddle::mixtures {
namespace {

double limit_of(const Limits& limits, int64_t layer) {
  return limits ? (*limits)[static_cast<size_t>(layer)].value_or(0) : 0;
}

void add_attention(model::ModelKeys<StepKeys>& keys) {
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  keys.field("num_attention_groups", &StepKeys::num_attention_groups, "Number of key-value heads. null: 8.",
             decoder::kSize)
      .field("num_sliding_attention_heads", &StepKeys::num_sliding_attention_heads,
             "Number of query heads in sliding_attention layers. null: derived from attention_other_setting, "
             "else num_attention_heads.",
             decoder::kSize)
      .field("sliding_window", &StepKeys::sliding_window,
             "Size of the window of sliding_attention layers in tokens, including the current token. null: "
             "no window.",
             decoder::kSize)
      .field("attention_bias", &Keys::attention_bias, "Whether q, k, v and o have biases.")
      .field("query_pre_attn_scalar", &StepKeys::query_pre_attn_scalar,
             "Attention scores are divided by the square root of this number. null: head_dim.",
             at_least(1e-30))
      .field("use_rope_layers", &StepKeys::use_rope_layers,
             "Layers with rotation. Only true for each layer, or an empty list, is supported.")
      .field("yarn_only_types", &StepKeys::yarn_only_types,
             "Layer types that rope_scaling applies to. Only [full_attention] is supported.")
      .only("use_head_wise_attn_gate", Node::boolean(true), "Attention without a gate is not supported.")
      .only("gating", Node::boolean(true), "transformers' spelling of use_head_wise_attn_gate.")
      .only("use_qk_norm", Node::boolean(true), "Queries and keys always have norms.")
      .only("zero_centered", Node::boolean(true), "Norms multiply by 1 + weight.")
      .only("sink", Node::boolean(false), "Sinks are not supported.")
      .only("att_impl_type", Node::text("GQA"), "Attention uses grouped key-value heads.")
      .only("use_bidirectional_attention", Node::boolean(false), "Only causal attention is built.")
      .only("attention_dropout", Node::real(0), "Attention dropout is not supported.");
}

void add_expert_keys(model::ModelKeys<StepKeys>& keys) {
  add_experts(keys, {.experts = nullptr, .experts_of_token = nullptr, .scale = "moe_router_scaling_factor"});
  const Range<int64_t> experts{1, 65536};
  keys.field("moe_num_experts", &StepKeys::moe_num_experts, "Number of experts per layer. null: 288.",
             experts)
      .field("n_routed_experts", &StepKeys::n_routed_experts, "Alias of moe_num_experts.", experts)
      .field("num_local_experts", &StepKeys::num_local_experts, "Alias of moe_num_experts.", experts)
      .field("moe_top_k", &StepKeys::moe_top_k, "Number of experts per token. null: 8.", decoder::kSize)
      .field("num_experts_per_tok", &StepKeys::num_experts_per_tok, "Alias of moe_top_k.", decoder::kSize)
      .field("share_expert_dim", &StepKeys::share_expert_dim, "Width of the shared expert. null: 1280.",
             decoder::kSize)
      .field("share_expert_dims", &StepKeys::share_expert_dims, "Alias of share_expert_dim.", decoder::kSize)
      .field("need_fp32_gate", &StepKeys::need_fp32_gate, "Compute the router's projection in fp32.")
      .field("swiglu_limits", &StepKeys::swiglu_limits,
             "Limit of the SwiGLU inputs of the experts, per layer: silu(gate) is clamped from above, up on "
             "both sides. null or 0: no limit.")
      .field("swiglu_limits_shared", &StepKeys::swiglu_limits_shared,
             "Limit of the SwiGLU inputs of shared experts and MLPs, per layer.")
      .only("use_moe", Node::boolean(true), "Models without experts are not supported.")
      .only("use_moe_router_bias", Node::boolean(true), "A correction bias selects experts.")
      .only("moe_router_activation", Node::text("sigmoid"), "Function that converts router logits to scores.")
      .only("norm_expert_weight", Node::boolean(true), "Routing weights of a token sum to 1.")
      .only("mlp_bias", Node::boolean(false), "MLP biases are not supported.");
}

model::ModelKeys<StepKeys> step_keys() {
  auto keys = decoder::common_keys<StepKeys>();
  add_attention(keys);
  add_layer_words(keys);
  add_expert_keys(keys);
  keys.then(fill_step).rule(complaint_of_step).group(published_layers()).group(rotary_of_layers());
  keys.field(
      "num_mtp_layers", &StepKeys::num_mtp_layers,
      "Number of multi-token prediction layers, which are neither built nor read. No effect on the model; "
      "the figures of a benchmark recipe count these layers as in NeMo AutoModel.",
      Range<int64_t>{0, 64});
  for (const char* key : {"mtp_layer_types", "mtp_mlp_layer_types"})
    keys.unused(key, "Multi-token prediction layers are neither built nor read.");
  for (const char* key : {"moe_every_n_layer", "moe_layer_offset"})
    keys.unused(key, "moe_layers_enum or mlp_layer_types is used instead.");
  keys.unused("per_layer_config", "num_sliding_attention_heads is used instead.")
      .unused("max_seq_len", "max_position_embeddings is used instead.")
      .unused("output_router_logits", "No auxiliary loss is computed, as in transformers.");
  return keys;
}

decoder::Attention attention(const StepKeys& keys, int64_t layer, const decoder::Norm& norm) {
  decoder::Attention out = attention_of(keys, layer, keys.sliding_window.value_or(0));
  out.heads = keys.heads(layer);
  out.norm = norm;
  out.gate.width = decoder::OutputGate::Width::each_head;
  if (keys.query_pre_attn_scalar) out.options.scale = 1 / std::sqrt(*keys.query_pre_attn_scalar);
  return out;
}

decoder::Mixture mixture(const StepKeys& keys, int64_t layer) {
  decoder::Mixture out = keys.corrected_mixture();
  out.router.in_fp32 = out.router.in_fp32 || keys.need_fp32_gate;
  if (const double limit = limit_of(keys.swiglu_limits, layer); limit > 0)
    out.activation = {.kind = model::ExpertActivation::Kind::limited_swiglu, .limit = limit};
  out.shared_width = *keys.share_expert_dim;
  out.shared_limit = limit_of(keys.swiglu_limits_shared, layer);
  return out;
}

decoder::Model model_of(const StepKeys& keys) {
  decoder::Norm norm = keys.norm();
  norm.kind = decoder::Norm::Kind::rms_plus_one;
  decoder::Model model = keys.model();
  model.last_norm = norm;
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Mlp mlp = keys.mlp();
    mlp.limit = limit_of(keys.swiglu_limits_shared, i);
    decoder::Layer layer{attention(keys, i, norm), mlp, norm};
    if (keys.sparse(i)) layer.feed_forward = mixture(keys, i);
    model.layers.push_back(std::move(layer));
  }
  return model;
}

decoder::Files files(const StepKeys& keys) {
  decoder::ExpertFiles experts;
  experts.layer = "moe", experts.correction = "router_bias";
  experts.stacked = experts.apart = true, experts.transposed = false;
  decoder::Files files;
  files.experts(experts).renamed("mlp.shared_experts", "share_expert");
  ignore_further_layers(keys, files);
  return files;
}

// Counts heads and windows per layer, and experts in the listed layers. Multi-token prediction layers count
// with full attention and experts.
double benchmark(const BenchmarkSizes& m) {
  const Node* other = model::given(m.keys, "attention_other_setting");
  const Node* others = other == nullptr ? nullptr : model::given(*other, "num_attention_heads");
  const double heads = others == nullptr ? m.a : others->as_real(), d = m.head();
  const double whole = m.S * (m.S + 1) / 2, near = m.pairs_within(m.of("sliding_window", 512));
  const auto attention = [&](double of, double pairs) {
    return 6 * m.G * (m.S * m.h * d * 2 * (of + m.g) + of * pairs * d * 2);
  };
  const double full = m.count("layer_types", "full_attention", m.layers), mtp = m.of("num_mtp_layers", 0);
  const double sparse = m.count("mlp_layer_types", "sparse", m.layers - 3);
  const double experts = m.gated(m.expert_width() * m.chosen(8)) + m.gated(m.of("share_expert_dim", 0));
  return full * attention(m.a, whole) + (m.layers - full) * attention(heads, near) + sparse * experts +
         (m.layers - sparse) * m.gated(m.f) + m.logits() +
         mtp * (12 * m.G * m.S * m.h * m.h + attention(m.a, whole) + experts + m.logits());
}

const decoder::Description<StepKeys>& step3p5() {
  static const decoder::Description<StepKeys> kStep = {
      "step3p5", "Step3p5ForCausalLM", step_keys(), model_of, {}, files, benchmark};
  return kStep;
}

}  // namespace

void offer_step3p5(Offer& plugin) {
  plugin.model<decoder::Family<step3p5>>("step3p5", step3p5().keys);
}

}  // namespace heddle::mixtures
