// Gemma 4: Gemma 3 with a different head width in full-attention layers, values that equal keys, and norms of
// values.
#include <cmath>

#include "families.h"
#include "gemma4_keys.h"
#include "heddle/decoder/text_family.h"

namespace heddle::gemma {
namespace {

decoder::Attention attention_of(const Gemma4Keys& keys, int64_t layer) {
  const bool slides = keys.slides(layer);
  decoder::Attention out = keys.attention();
  out.kv_heads = keys.heads_of_keys(slides);
  out.head_dim = keys.head_width_of(slides);
  out.rotation = (slides ? keys.sliding_rotary : keys.rotary).rotation(out.head_dim);
  out.qkv_bias = out.output_bias = keys.attention_bias;
  out.head_norm = decoder::Attention::HeadNorm::each_head;
  out.value_norm = decoder::Norm{.kind = decoder::Norm::Kind::rms_bare, .eps = keys.rms_norm_eps};
  out.keys_are_values = keys.attention_k_eq_v && !slides;
  out.options.scale = 1;
  if (slides) out.options.window = keys.sliding_window;
  if (keys.shares(layer)) out.keys_of_layer = keys.source_of(layer);
  return out;
}

// Router: softmax over all experts, then the weights of the selected experts are divided by their sum.
decoder::Mixture experts_of(const Gemma4Keys& keys) {
  decoder::Mixture out;
  out.router.experts = *keys.num_experts;
  out.router.rule.top_k = *keys.top_k_experts;
  out.router.rule.normalise = true;
  out.router.norm_eps = keys.rms_norm_eps;
  out.router.expert_scale = true;
  out.width = *keys.moe_intermediate_size;
  out.activation.kind = *expert_activation(keys.hidden_activation);
  return out;
}

decoder::Model gemma4_model(const Gemma4Keys& keys) {
  const decoder::Activation activation = decoder::activation_of(keys.hidden_activation);
  decoder::Model model = keys.model();
  model.embedding_multiplier = std::sqrt(static_cast<double>(keys.hidden_size));
  model.logits_soft_cap = keys.final_logit_softcapping.value_or(0);
  model.layer_inputs = {keys.hidden_size_per_layer_input, keys.vocab_size_per_layer_input, activation};
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Mlp mlp = keys.mlp(activation);
    if (keys.use_double_wide_mlp && keys.shares(i)) mlp.width *= 2;
    decoder::Layer layer{attention_of(keys, i), mlp, keys.norm(), decoder::Layer::Order::both};
    layer.scalar = true;
    if (keys.enable_moe_block) layer.experts_beside = experts_of(keys);
    model.layers.push_back(std::move(layer));
  }
  return model;
}

// The text model inside a model with images and audio has a prefix. Published files contain key and value
// tensors for layers that share keys and values, too.
decoder::Files files_of_text(const Gemma4Keys& keys) {
  decoder::Files files;
  files.otherwise("model.", "model.language_model.").otherwise("model.", "language_model.model.");
  for (const char* part : {"vision_tower", "embed_vision", "audio_tower", "embed_audio", "vision_embedder"})
    files.ignored_module(part);
  files.experts({.stacked = true, .transposed = false, .memory = "moe"})
      .renamed("moe.pre_feedforward_layernorm_2", "pre_feedforward_layernorm_2")
      .renamed("moe.gate.weight", "router.proj.weight")
      .renamed("moe.gate", "router")
      .renamed("moe.experts", "experts")
      .renamed("model.layer_inputs", "model");
  for (const std::string part : {"per_layer_input_gate", "per_layer_projection", "post_per_layer_input_norm"})
    files.renamed("layer_input." + part, part);
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i)
    if (keys.shares(i))
      for (const std::string part : {"k_proj", "v_proj", "k_norm", "v_norm"})
        files.ignored_module("layers." + std::to_string(i) + ".self_attn." + part);
  return files;
}

const decoder::Description<Gemma4Keys>& gemma4_text() {
  static const decoder::Description<Gemma4Keys> kGemma4 = {
      "gemma4_text", "Gemma4ForCausalLM", gemma4_keys(), gemma4_model, {}, files_of_text};
  return kGemma4;
}

decoder::Model unified_model(const Gemma4UnifiedKeys& keys) {
  return gemma4_model(keys);
}

decoder::Files files_of_unified(const Gemma4UnifiedKeys& keys) {
  return files_of_text(keys);
}

const decoder::Description<Gemma4UnifiedKeys>& gemma4_unified_text() {
  static const decoder::Description<Gemma4UnifiedKeys> kUnified = {
      "gemma4_unified_text", "Gemma4UnifiedForCausalLM", gemma4_unified_keys(), unified_model, {},
      files_of_unified};
  return kUnified;
}

}  // namespace

void offer_gemma4(Offer& plugin) {
  plugin.model<decoder::Family<gemma4_text>>("gemma4_text", gemma4_text().keys);
  plugin.model<decoder::Family<gemma4_unified_text>>("gemma4_unified_text", gemma4_unified_text().keys);
  using Text = decoder::TextFamily<gemma4_text>;
  plugin.model<Text>("gemma4", Text::table());
  using UnifiedText = decoder::TextFamily<gemma4_unified_text>;
  plugin.model<UnifiedText>("gemma4_unified", UnifiedText::table());
}

}  // namespace heddle::gemma
