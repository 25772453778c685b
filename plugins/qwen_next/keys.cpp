// Keys of Qwen3-Next, and the description of its layers: a delta net or attention with a gate, and an MLP or
// experts.
#include "keys.h"

#include <algorithm>
#include <cmath>

#include "heddle/decoder/benchmark.h"
#include "heddle/decoder/description.h"

namespace heddle::qwen_next {
namespace {

constexpr const char* kLinearAttention = "linear_attention";

decoder::Mixture mixture_of(const Keys& keys) {
  decoder::Mixture out = keys.mixture();
  out.shared_width = keys.shared_expert_intermediate_size;
  out.shared_gate = true;
  return out;
}

decoder::Attention attention_of(const Keys& keys, const decoder::Norm& norm) {
  decoder::Attention out = keys.attention();
  out.qkv_bias = out.output_bias = keys.attention_bias;
  out.head_norm = decoder::Attention::HeadNorm::each_head;
  out.norm = norm;
  out.output_gate = true;
  return out;
}

double delta_net(const BenchmarkSizes& m) {
  const double heads = m.of("linear_num_value_heads", 0), width = m.of("linear_value_head_dim", 0);
  const double keys = m.of("linear_num_key_heads", 0) * m.of("linear_key_head_dim", 0),
               values = heads * width;
  return 6 * m.G * m.S *
         (m.h * (2 * keys + 3 * values + 2 * heads) +
          m.of("linear_conv_kernel_dim", 4) * (2 * keys + values) + 4 * values * width);
}

}  // namespace

// Counts every layer as having experts if any layer has experts.
double benchmark(const BenchmarkSizes& m) {
  const double attending = m.count("layer_types", decoder::kFullAttention,
                                   std::floor(m.layers / m.of("full_attention_interval", 4)));
  const double chosen = m.of("num_experts", 0) > 1 ? m.chosen(1) : 0;
  const double width =
      chosen > 0 ? m.of("moe_intermediate_size", 0) * chosen + m.of("shared_expert_intermediate_size", 0)
                 : m.f;
  const double attention = m.grouped_attention() + 6 * m.G * m.S * m.h * m.a * m.head();
  return attending * attention + (m.layers - attending) * delta_net(m) + m.layers * m.gated(width) +
         m.logits();
}

Keys::Keys() {
  vocab_size = 151936, hidden_size = 2048, intermediate_size = 5632;
  num_hidden_layers = 48, num_attention_heads = 16, num_key_value_heads = 2, head_dim = 256;
  max_position_embeddings = 32768, rotary.part = 0.25;
  experts = 0, experts_of_token = 10, expert_width = 512;
}

bool Keys::attends(int64_t layer) const {
  if (layer_types) return (*layer_types)[static_cast<size_t>(layer)] == decoder::kFullAttention;
  return (layer + 1) % full_attention_interval == 0;
}

bool Keys::has_experts(int64_t layer) const {
  const std::vector<int64_t> dense = mlp_only_layers.value_or(std::vector<int64_t>{});
  return experts > 0 && (layer + 1) % decoder_sparse_step == 0 &&
         std::find(dense.begin(), dense.end(), layer) == dense.end();
}

std::string complaint_of_layers(const Keys& keys) {
  if (keys.linear_num_value_heads % keys.linear_num_key_heads != 0)
    return "linear_num_value_heads " + std::to_string(keys.linear_num_value_heads) +
           " is not a multiple of linear_num_key_heads " + std::to_string(keys.linear_num_key_heads);
  if (!keys.layer_types) return "";
  for (const std::string& type : *keys.layer_types)
    if (type != decoder::kFullAttention && type != kLinearAttention)
      return "layer_types: a layer of type '" + type +
             "' is not built; known: full_attention, linear_attention";
  if (static_cast<int64_t>(keys.layer_types->size()) == keys.num_hidden_layers) return "";
  return "layer_types has " + std::to_string(keys.layer_types->size()) + " words for " +
         std::to_string(keys.num_hidden_layers) + " layers";
}

std::string complaint_of_experts(const Keys& keys) {
  if (keys.experts > 0 && keys.experts_of_token > keys.experts)
    return "num_experts_per_tok " + std::to_string(keys.experts_of_token) + " is more than num_experts " +
           std::to_string(keys.experts);
  for (const int64_t layer : keys.mlp_only_layers.value_or(std::vector<int64_t>{}))
    if (layer < 0 || layer >= keys.num_hidden_layers)
      return "mlp_only_layers: expected layers from 0 to " + std::to_string(keys.num_hidden_layers - 1) +
             ", got " + std::to_string(layer);
  return "";
}

decoder::Model model_of(const Keys& keys) {
  decoder::Norm norm = keys.norm();
  norm.kind = decoder::Norm::Kind::rms_plus_one;
  decoder::Model model = keys.model();
  model.last_norm = norm;
  const auto delta_net =
      decoder::delta_net({keys.linear_num_key_heads, keys.linear_num_value_heads, keys.linear_key_head_dim,
                          keys.linear_value_head_dim, keys.linear_conv_kernel_dim, keys.rms_norm_eps});
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Layer layer;
    layer.norm = norm;
    if (keys.attends(i))
      layer.mixer = attention_of(keys, norm);
    else
      layer.mixer = delta_net;
    if (keys.has_experts(i))
      layer.feed_forward = mixture_of(keys);
    else
      layer.feed_forward = keys.mlp();
    model.layers.push_back(std::move(layer));
  }
  return model;
}

}  // namespace heddle::qwen_next
