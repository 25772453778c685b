// ERNIE 4.5 with experts: interleaved rotary embedding, and a softmax router in fp32 with a correction bias.
#include "families.h"
#include "keys.h"

namespace heddle::mixtures {
namespace {

struct ErnieKeys : Keys {
  ErnieKeys() {
    vocab_size = 103424, hidden_size = 2560, intermediate_size = 12288, num_hidden_layers = 28;
    num_attention_heads = 20, num_key_value_heads = 4, max_position_embeddings = 131072;
    rms_norm_eps = 1e-5, pad_token_id = 0, tie_word_embeddings = true, rotary.theta = 500000;
    experts = 64, experts_of_token = 6, expert_width = 1536;
  }
  int64_t shared_experts = 2, first = 1, last = -1, interval = 1;
  bool has_experts(int64_t layer) const {
    return (layer + 1) % interval == 0 && layer >= first && (last == -1 || layer <= last);
  }
};

void add_expert_keys(model::ModelKeys<ErnieKeys>& keys) {
  add_experts(keys, {.experts = "moe_num_experts", .experts_of_token = "moe_k", .in_fp32 = true});
  keys.field("moe_num_shared_experts", &ErnieKeys::shared_experts,
             "Number of shared experts, computed as one expert of that multiple of the width. 0: none.",
             Range<int64_t>{0, 65536})
      .field("moe_layer_start_index", &ErnieKeys::first, "First layer with experts.",
             Range<int64_t>{0, model::kMostLayers})
      .field("moe_layer_end_index", &ErnieKeys::last,
             "Last layer with experts. -1: the last layer of the model.",
             Range<int64_t>{-1, model::kMostLayers})
      .field("moe_layer_interval", &ErnieKeys::interval, "Every Nth layer in this range has experts.",
             decoder::kSize)
      .only("moe_norm_min", Node::real(1e-12), "Routing weights are divided by their sum.")
      .field("output_router_logits", &Keys::output_router_logits,
             "Train with the auxiliary loss. Requires router_aux_loss_type, because transformers' loss "
             "counts experts that the router does not select.")
      .rule(complaint_of_loss);
}

model::ModelKeys<ErnieKeys> ernie_keys() {
  auto keys = decoder::common_keys<ErnieKeys>();
  decoder::add_head_dim(keys, /*written=*/true);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "ernie4_5_moe");
  add_expert_keys(keys);
  keys.only("use_bias", Node::boolean(false),
            "Biases are not supported, because the head would have a bias too.")
      .unused("num_nextn_predict_layers", "Multi-token prediction layers are neither built nor read.");
  for (const char* key : {"moe_capacity", "moe_gate", "moe_use_aux_free"})
    keys.unused(key, "Not read by transformers.");
  return keys;
}

decoder::Model model_of(const ErnieKeys& keys) {
  decoder::Model model = keys.model();
  decoder::Attention attention = keys.attention();
  attention.rotation.interleaved = true;
  decoder::Mixture mixture = keys.corrected_mixture();
  mixture.router.rule.score = model::RouterRule::Score::softmax;
  mixture.router.in_fp32 = true;
  mixture.shared_width = keys.shared_experts * keys.expert_width;
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Layer layer{attention, keys.mlp(), keys.norm()};
    if (keys.has_experts(i)) layer.feed_forward = mixture;
    model.layers.push_back(std::move(layer));
  }
  return model;
}

decoder::Files files() {
  decoder::ExpertFiles experts;
  experts.correction = "moe_statics.e_score_correction_bias", experts.correction_row = true;
  decoder::Files files;
  files.experts(experts);
  for (const char* module : {"mtp_block", "mtp_emb_norm", "mtp_hidden_norm", "mtp_linear_proj"})
    files.ignored_module(module);
  return files;
}

const decoder::Description<ErnieKeys>& ernie4_5_moe() {
  static const decoder::Description<ErnieKeys> kErnie = {
      "ernie4_5_moe", "Ernie4_5_MoeForCausalLM", ernie_keys(), model_of, files(), nullptr,
      nullptr,        decoder::automodel_loss()};
  return kErnie;
}

}  // namespace

void offer_ernie4_5_moe(Offer& plugin) {
  plugin.model<decoder::Family<ernie4_5_moe>>("ernie4_5_moe", ernie4_5_moe().keys);
}

}  // namespace heddle::mixtures
