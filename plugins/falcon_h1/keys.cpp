// Keys of Falcon-H1, and the description of its layers: attention and Mamba-2 in parallel, then an MLP.
#include "keys.h"

#include <algorithm>
#include <cmath>

#include "heddle/decoder/description.h"

namespace heddle::falcon_h1 {
namespace {

decoder::Attention attention_of(const Keys& keys) {
  decoder::Attention out = keys.attention();
  out.qkv_bias = out.output_bias = keys.attention_bias;
  // A factor of the keys before the rotation equals a factor of the scores.
  out.options.scale = keys.key_multiplier / std::sqrt(static_cast<double>(out.head_dim));
  out.input_multiplier = keys.attention_in_multiplier;
  out.output_multiplier = keys.attention_out_multiplier;
  return out;
}

decoder::Mamba mamba_of(const Keys& keys) {
  using Gate = decoder::Mamba::Gate;
  decoder::Mamba out;
  out.heads = keys.mamba_n_heads, out.groups = keys.mamba_n_groups;
  out.width = keys.mamba_d_head, out.state = keys.mamba_d_state, out.taps = keys.mamba_d_conv;
  out.bias = keys.mamba_proj_bias, out.convolution_bias = keys.mamba_conv_bias;
  out.output_bias = keys.projectors_bias;
  out.eps = keys.rms_norm_eps;
  out.shortest_step = keys.shortest_step, out.longest_step = keys.longest_step;
  const Gate with_norm = keys.mamba_norm_before_gate ? Gate::after_norm : Gate::before_norm;
  out.gate = keys.mamba_rms_norm ? with_norm : Gate::without_norm;
  out.drawn_steps = false;
  out.input_multiplier = keys.ssm_in_multiplier, out.output_multiplier = keys.ssm_out_multiplier;
  std::copy_n(keys.ssm_multipliers->begin(), out.part_multipliers.size(), out.part_multipliers.begin());
  return out;
}

std::string complaint_of_count(const std::string& key, const std::vector<double>& values, size_t count) {
  if (values.size() == count) return "";
  return key + ": expected " + std::to_string(count) + " numbers, got " + std::to_string(values.size());
}

void read_head_width(const Node& given, Keys& keys) {
  const Node* width = model::given(given, "mamba_d_head");
  const bool is_auto = width == nullptr || (width->kind() == Node::Kind::text && width->as_text() == "auto");
  const int64_t own = keys.inner() / keys.mamba_n_heads;
  keys.mamba_d_head = is_auto ? own : width->as_integer();
  if (keys.mamba_d_head * keys.mamba_n_heads == keys.inner() && keys.mamba_d_head > 0) return;
  const std::string heads = std::to_string(keys.mamba_n_heads) + " heads (mamba_n_heads)";
  model::refuse(width == nullptr ? given : *width,
                "mamba_d_head: " + heads + " of width " + std::to_string(keys.mamba_d_head) + " are not " +
                    std::to_string(keys.inner()) + " elements (mamba_d_ssm, or mamba_expand * hidden_size)",
                "set mamba_n_heads and mamba_d_head so that their product is mamba_d_ssm");
}
}  // namespace
Keys::Keys() {
  vocab_size = 128000, intermediate_size = 14336, num_key_value_heads = 8, pad_token_id = 0;
  max_position_embeddings = 8192, rms_norm_eps = 1e-5;
}

void fill(Keys& keys) {
  if (!keys.ssm_multipliers) keys.ssm_multipliers = std::vector<double>(5, 1.0);
  if (!keys.mlp_multipliers) keys.mlp_multipliers = std::vector<double>(2, 1.0);
}

std::string complaint_of_mamba(const Keys& keys) {
  if (keys.mamba_n_heads % keys.mamba_n_groups == 0) return "";
  return "mamba_n_heads " + std::to_string(keys.mamba_n_heads) + " is not a multiple of mamba_n_groups " +
         std::to_string(keys.mamba_n_groups);
}

std::string complaint_of_multipliers(const Keys& keys) {
  const std::string complaint = complaint_of_count("ssm_multipliers", *keys.ssm_multipliers, 5);
  return complaint.empty() ? complaint_of_count("mlp_multipliers", *keys.mlp_multipliers, 2) : complaint;
}

model::KeyGroup<Keys> head_width() {
  model::KeyGroup<Keys> out;
  out.table = {
      {"mamba_d_head", "integer or auto", "auto", "",
       "Width of a Mamba-2 head. No effect, because it must be mamba_d_ssm / mamba_n_heads, or auto.", ""}};
  out.read = read_head_width;
  out.write = [](const Keys& of) -> std::vector<Node::Entry> {
    return {{"mamba_d_head", Node::integer(of.mamba_d_head)}};
  };
  return out;
}

decoder::Model model_of(const Keys& keys) {
  decoder::Mlp mlp = keys.mlp();
  mlp.bias = keys.mlp_bias;
  mlp.gate_multiplier = keys.mlp_multipliers->front(), mlp.output_multiplier = keys.mlp_multipliers->back();
  decoder::Layer layer{attention_of(keys), mlp, keys.norm()};
  layer.beside = {decoder::mamba(mamba_of(keys))};
  decoder::Model model = keys.model(layer);
  model.embedding_multiplier = keys.embedding_multiplier;
  model.logits_multiplier = keys.lm_head_multiplier;
  return model;
}

}  // namespace heddle::falcon_h1
