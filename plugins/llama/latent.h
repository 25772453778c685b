// Keys and layers of the families with latent attention.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "keys.h"

namespace heddle::llama {

struct LatentKeys : ExpertKeys {
  LatentKeys() { always_in_fp32 = true, shared = 1; }

  std::optional<int64_t> q_lora_rank = 1536;
  int64_t kv_lora_rank = 512, qk_nope_head_dim = 128, qk_rope_head_dim = 64, v_head_dim = 128;
  bool rope_interleave = true;
  std::optional<int64_t> shared, first_dense = 0;  // n_shared_experts, first_k_dense_replace
  int64_t sparse_every = 1;                        // moe_layer_freq
  std::vector<std::string> layer_types;            // mlp_layer_types; empty: not given

  bool sparse(int64_t layer) const;
};

// DeepSeek-V3, and the base of the other families whose router has a correction bias.
struct CorrectedKeys : LatentKeys {
  CorrectedKeys();
};

// Resolves null and absent values, and groups.
void settle_latent(LatentKeys& keys);
std::string complaint_of_widths(const LatentKeys& keys);
// Refuses mscale_all_dim without yarn.
void check_mscale(const Node& given, const LatentKeys& keys);
void check_corrected(const Node& given, LatentKeys& keys);
// Checks the layers with experts. names: the keys that determine them.
void check_sparse_layers(const Node& given, const LatentKeys& keys, const std::string& names);

// Reads mlp_layer_types: dense or sparse for each layer. Throws Error{config}.
void read_layer_types(const Node& types, LatentKeys& keys);
std::vector<Node::Entry> layer_types_entry(const LatentKeys& keys);
FieldInfo mlp_layer_types_info();
// Reads aux_loss_alpha, DeepSeek's name of router_aux_loss_coef.
void read_aux_loss_alpha(const Node& given, LatentKeys& keys);

// Returns the model; without a correction bias, groups are scored by their best expert.
decoder::Model latent_model(const LatentKeys& keys, bool corrected);

inline constexpr Form kLatentForm = {.latent = true, .head_dim = "Ignored: the keys of the parts set it."};
inline constexpr const char* kFirstDense = "Number of layers, from the first, without experts.";
inline constexpr const char* kSparseEvery =
    "From layer first_k_dense_replace on, layers whose index is a multiple of this have experts, as in "
    "DeepSeek's own code. transformers uses experts in all of them.";

// Declares the keys of attention.
template <class Own>
void add_latent_attention(model::ModelKeys<Own>& keys) {
  keys.field("q_lora_rank", &LatentKeys::q_lora_rank,
             "Rank of the low-rank query projection. null or 0: a single full-rank projection.",
             Range<int64_t>{0, model::kLargestSize})
      .field("kv_lora_rank", &LatentKeys::kv_lora_rank, "Rank of the latent of keys and values.",
             decoder::kSize)
      .field("qk_nope_head_dim", &LatentKeys::qk_nope_head_dim,
             "Width of the unrotated part of a query or key head.", decoder::kSize)
      .field("qk_rope_head_dim", &LatentKeys::qk_rope_head_dim,
             "Width of the rotated part of a head. All heads share that part of keys.", decoder::kSize)
      .field("v_head_dim", &LatentKeys::v_head_dim, "Width of a value head.", decoder::kSize)
      .unused("qk_head_dim", "Ignored: always qk_nope_head_dim + qk_rope_head_dim.")
      .rule(complaint_of_widths);
  add_attention_bias(keys, "Whether q_a, kv_a and o have biases.");
  add_check<Own>(keys, check_mscale);
}

// Declares the keys of routers and experts, except the keys of the layers that have them.
template <class Own>
void add_latent_experts(model::ModelKeys<Own>& keys, const decoder::MixtureForm& form) {
  keys.field("n_shared_experts", &LatentKeys::shared,
             "Number of shared experts, computed as one expert of that multiple of the width.",
             Range<int64_t>{0, 65536});
  add_experts(keys, form, {"num_experts", "num_local_experts"}, false);
  keys.then(settle_latent)
      .unused("seq_aux", "Ignored, as in transformers: router_aux_loss_type selects the loss.")
      .unused("ep_size", "Ignored: distributed.ep_size splits experts.");
  for (const char* key : {"num_nextn_predict_layers", "num_mtp_layers"})
    keys.unused(key,
                "Ignored: multi-token prediction layers are not trained, and their tensors are not read.");
  keys.group({{{"aux_loss_alpha", "number", "0.001", "at least 0.0",
                "DeepSeek's spelling of router_aux_loss_coef. No effect without router_aux_loss_type.", ""}},
              read_aux_loss_alpha,
              [](const Own&) { return std::vector<Node::Entry>(); }});
}

// Declares first_k_dense_replace and moe_layer_freq.
template <class Own>
void add_first_dense(model::ModelKeys<Own>& keys) {
  keys.field("first_k_dense_replace", &LatentKeys::first_dense, kFirstDense,
             Range<int64_t>{0, model::kMostLayers})
      .field("moe_layer_freq", &LatentKeys::sparse_every, kSparseEvery,
             Range<int64_t>{1, model::kMostLayers});
  add_check<Own>(keys, [](const Node& given, Own& read) {
    check_sparse_layers(given, read, "first_k_dense_replace and moe_layer_freq");
  });
}

// Declares the keys of a family whose router has a correction bias, except the keys of its layers.
template <class Own>
model::ModelKeys<Own> corrected_keys(const std::string& model_type, bool halves = true) {
  auto keys = add_common<Own>(model_type, kLatentForm);
  add_latent_attention(keys);
  if (halves)
    keys.field("rope_interleave", &LatentKeys::rope_interleave,
               "Rotate neighboring pairs. false: rotate halves.");
  else
    keys.only("rope_interleave", Node::boolean(true), "Neighboring pairs are rotated, as in transformers.");
  add_latent_experts(keys, {.experts = "n_routed_experts",
                            .groups = "n_group",
                            .scale = "routed_scaling_factor",
                            .normalised = "norm_topk_prob",
                            .correction = true,
                            .in_fp32 = true});
  keys.only("scoring_func", Node::text("sigmoid"), "Function that converts router logits to scores.")
      .only("topk_method", Node::text("noaux_tc"), "Each group is scored by its best two experts.");
  add_check<Own>(keys, check_corrected);
  return keys;
}

}  // namespace heddle::llama
