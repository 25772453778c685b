// Latent attention, and routers that select experts by groups.
#include "latent.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace heddle::llama {
namespace {

using model::given;
using model::refuse;

constexpr const char *kDense = "dense", *kSparse = "sparse";

// yarn's temperature correction for a whole head. It is squared because queries and keys both have it.
double score_scale(const LatentKeys& keys) {
  const RotaryScaling& scaling = keys.rotary.scaling;
  const auto width = static_cast<double>(keys.qk_nope_head_dim + keys.qk_rope_head_dim);
  double factor = 1;
  if (scaling.kind == RotaryScaling::Kind::yarn && scaling.mscale_all_dim > 0 && scaling.factor > 1)
    factor += 0.1 * scaling.mscale_all_dim * std::log(scaling.factor);
  return factor * factor / std::sqrt(width);
}

decoder::Latent attention_of(const LatentKeys& keys) {
  decoder::Latent out;
  out.heads = keys.num_attention_heads;
  out.rank = keys.kv_lora_rank, out.query_rank = keys.q_lora_rank.value_or(0);
  out.plain = keys.qk_nope_head_dim, out.rotary = keys.qk_rope_head_dim, out.value = keys.v_head_dim;
  out.scale = score_scale(keys);
  out.bias = keys.attention_bias;
  out.interleaved = keys.rope_interleave;
  out.theta = keys.rotary.theta, out.scaling = keys.rotary.scaling;
  return out;
}

}  // namespace

CorrectedKeys::CorrectedKeys() {
  vocab_size = 129280, hidden_size = 7168, intermediate_size = 18432, num_hidden_layers = 61;
  num_attention_heads = 128, max_position_embeddings = 4096;
  experts = 256, experts_of_token = 8, expert_width = 2048, groups = 8, top_groups = 4, routed_scale = 2.5;
  first_dense = 3;
}

bool LatentKeys::sparse(int64_t layer) const {
  if (!layer_types.empty()) return layer_types[static_cast<size_t>(layer)] == kSparse;
  return layer >= first_dense.value_or(0) && layer % sparse_every == 0;
}

void settle_latent(LatentKeys& keys) {
  keys.head_dim = keys.qk_rope_head_dim;
  if (keys.q_lora_rank == 0) keys.q_lora_rank.reset();
  keys.shared = keys.shared.value_or(0);
  keys.first_dense = keys.first_dense.value_or(0);
}

std::string complaint_of_widths(const LatentKeys& keys) {
  if (keys.qk_rope_head_dim % 2 != 0)
    return "qk_rope_head_dim is " + std::to_string(keys.qk_rope_head_dim) +
           ", but the rotary embedding needs an even number";
  const int64_t heads = keys.num_attention_heads;
  if (heads > model::kLargestSize / (keys.qk_nope_head_dim + keys.qk_rope_head_dim + keys.v_head_dim))
    return "num_attention_heads " + std::to_string(heads) + " of these widths are more than " +
           std::to_string(model::kLargestSize);
  return "";
}

void check_mscale(const Node& node, const LatentKeys& keys) {
  if (keys.rotary.scaling.kind == RotaryScaling::Kind::yarn) return;
  for (const char* key : {"rope_parameters", "rope_scaling"})
    if (const Node* scaling = given(node, key); scaling != nullptr && scaling->is_map())
      if (const Node* all = given(*scaling, "mscale_all_dim"); all != nullptr)
        refuse(*all, "mscale_all_dim is built for rope type yarn only", "remove the key");
}

void check_corrected(const Node& node, LatentKeys& keys) {
  check_groups(node, keys, "n_routed_experts", 2);
}

void check_sparse_layers(const Node& node, const LatentKeys& keys, const std::string& names) {
  std::vector<bool> sparse;
  for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer) sparse.push_back(keys.sparse(layer));
  check_layers(node, sparse, names);
}

void read_layer_types(const Node& types, LatentKeys& keys) {
  if (!types.is_list() || static_cast<int64_t>(types.size()) != keys.num_hidden_layers)
    refuse(types, "expected a list of " + std::to_string(keys.num_hidden_layers) +
                      " words, dense or sparse, one per layer, got " +
                      (types.is_list() ? std::to_string(types.size()) : types.written()));
  for (const Node& type : types.items()) {
    if (type.as_text() != kDense && type.as_text() != kSparse)
      refuse(type, "expected dense or sparse, got " + type.written());
    keys.layer_types.push_back(type.as_text());
  }
}

std::vector<Node::Entry> layer_types_entry(const LatentKeys& keys) {
  std::vector<Node> types;
  for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer)
    types.push_back(Node::text(keys.sparse(layer) ? kSparse : kDense));
  return {{"mlp_layer_types", Node::list(std::move(types))}};
}

FieldInfo mlp_layer_types_info() {
  return {"mlp_layer_types",
          "list or null",
          "null",
          "dense, sparse",
          "MLP type of each layer. null: derived from first_k_dense_replace.",
          ""};
}

void read_aux_loss_alpha(const Node& node, LatentKeys& keys) {
  const Node* alpha = given(node, "aux_loss_alpha");
  if (alpha == nullptr) return;
  if (!(alpha->as_real() >= 0) || !std::isfinite(alpha->as_real()))
    refuse(*alpha, "expected a number of at least 0, got " + alpha->written());
  if (given(node, "router_aux_loss_coef") == nullptr) keys.router_aux_loss_coef = alpha->as_real();
}

decoder::Model latent_model(const LatentKeys& keys, bool corrected) {
  decoder::Mixture mixture = corrected ? keys.corrected_mixture() : keys.mixture();
  mixture.shared_width = keys.shared.value_or(0) * keys.expert_width;
  decoder::Model model = keys.model();
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Layer layer{attention_of(keys), keys.mlp(), keys.norm()};
    if (keys.sparse(i)) layer.feed_forward = mixture;
    model.layers.push_back(std::move(layer));
  }
  return model;
}

}  // namespace heddle::llama
