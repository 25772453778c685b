// Laguna: heads, windows and rotary embeddings per layer, a softplus output gate, sigmoid routing.
#include <algorithm>

#include "families.h"
#include "keys.h"

namespace heddle::mixtures {
namespace {

constexpr const char *kPerHead = "per-head", *kPerElement = "per-element";

struct LagunaKeys : Keys {
  LagunaKeys() {
    vocab_size = 100352, hidden_size = 2048, intermediate_size = 8192, num_hidden_layers = 40;
    num_attention_heads = 48, num_key_value_heads = 8, head_dim = 128, max_position_embeddings = 131072;
    rotary = {.theta = 500000, .part = 0.5};
    experts = 256, experts_of_token = 8, expert_width = 512;
  }
  int64_t shared_width = 512, sliding_window = 512;
  std::optional<std::vector<int64_t>> num_attention_heads_per_layer, mlp_only_layers;
  std::string gating = kPerHead;

  int64_t heads(int64_t layer) const {
    if (!num_attention_heads_per_layer) return num_attention_heads;
    return (*num_attention_heads_per_layer)[static_cast<size_t>(layer)];
  }
};

// NeMo AutoModel also reads the numbers of the dense layers.
void fill_laguna(LagunaKeys& keys) {
  if (keys.mlp_layer_types) return;
  const std::vector<int64_t> dense = keys.mlp_only_layers.value_or(std::vector<int64_t>{0});
  keys.mlp_layer_types = words_of(keys.num_hidden_layers, [&](int64_t layer) {
    return std::find(dense.begin(), dense.end(), layer) == dense.end();
  });
}

std::string complaint_of_laguna(const LagunaKeys& keys) {
  for (const int64_t layer : keys.mlp_only_layers.value_or(std::vector<int64_t>{}))
    if (layer < 0 || layer >= keys.num_hidden_layers || keys.sparse(layer))
      return "mlp_only_layers contains layer " + std::to_string(layer) +
             ", which is not dense in mlp_layer_types";
  if (!keys.num_attention_heads_per_layer) return "";
  if (static_cast<int64_t>(keys.num_attention_heads_per_layer->size()) != keys.num_hidden_layers)
    return "num_attention_heads_per_layer has " + std::to_string(keys.num_attention_heads_per_layer->size()) +
           " numbers for " + std::to_string(keys.num_hidden_layers) + " layers";
  const int64_t keys_of_layer = keys.num_key_value_heads.value_or(keys.num_attention_heads);
  for (const int64_t heads : *keys.num_attention_heads_per_layer)
    if (heads < 1 || heads % keys_of_layer != 0 || heads > model::kLargestSize / keys.head_width())
      return "num_attention_heads_per_layer: " + std::to_string(heads) +
             " is not a multiple of num_key_value_heads " + std::to_string(keys_of_layer);
  return "";
}

// true means one gate per head, as in transformers.
model::KeyGroup<LagunaKeys> gating() {
  model::KeyGroup<LagunaKeys> out;
  out.table = {{"gating", "bool or str", "true", "true, per-head, per-element",
                "Granularity of attention's softplus output gate: one gate per head (true, per-head), or one "
                "per element (per-element).",
                ""}};
  out.read = [](const Node& given, LagunaKeys& keys) {
    const Node* gate = model::given(given, "gating");
    if (gate == nullptr) return;
    const bool yes = gate->kind() == Node::Kind::boolean && gate->as_boolean();
    const std::string word = gate->kind() == Node::Kind::text ? gate->as_text() : "";
    if (!yes && word != kPerHead && word != kPerElement)
      model::refuse(*gate, "expected true, per-head or per-element, got " + gate->written());
    keys.gating = word == kPerElement ? kPerElement : kPerHead;
  };
  out.write = [](const LagunaKeys& keys) -> std::vector<Node::Entry> {
    return {{"gating", Node::text(keys.gating)}};
  };
  return out;
}

model::KeyGroup<LagunaKeys> laguna_rotary() {
  model::KeyGroup<LagunaKeys> out;
  out.table = {rotary_of_types_info()};
  out.read = [](const Node& given, LagunaKeys& keys) { read_rotary_of_types(given, keys, "laguna", 1); };
  out.write = [](const LagunaKeys& keys) -> std::vector<Node::Entry> {
    return {{"rope_parameters", rotary_of_types(keys)}};
  };
  return out;
}

void add_expert_keys(model::ModelKeys<LagunaKeys>& keys) {
  add_experts(keys, {.scale = "moe_routed_scaling_factor"});
  keys.field("shared_expert_intermediate_size", &LagunaKeys::shared_width, "Width of the shared expert.",
             decoder::kSize)
      .field("mlp_only_layers", &LagunaKeys::mlp_only_layers,
             "Layers without experts, if mlp_layer_types is absent. null: the first layer.")
      .field("output_router_logits", &Keys::output_router_logits,
             "Train with the auxiliary loss. Requires router_aux_loss_type, because transformers' loss "
             "counts experts that the router does not select.")
      .rule(complaint_of_loss)
      .only("norm_topk_prob", Node::boolean(true), "Routing weights are always normalized.")
      .only("decoder_sparse_step", Node::integer(1), "mlp_layer_types sets the layers with experts.")
      .only("moe_router_logit_softcapping", Node::real(0), "Soft caps of router logits are not supported.")
      .only("moe_apply_router_weight_on_input", Node::boolean(false),
            "Routing weights multiply the experts' outputs.");
}

model::ModelKeys<LagunaKeys> laguna_keys() {
  auto keys = decoder::common_keys<LagunaKeys>();
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  keys.group(laguna_rotary()).group(gating());
  keys.field("attention_bias", &Keys::attention_bias, "Whether q, k, v and o have biases.")
      .field("num_attention_heads_per_layer", &LagunaKeys::num_attention_heads_per_layer,
             "Number of query heads of each layer. null: num_attention_heads.")
      .field("sliding_window", &LagunaKeys::sliding_window,
             "Size of the window of sliding_attention layers in tokens, including the current token.",
             decoder::kSize);
  add_layer_words(keys);
  add_expert_keys(keys);
  keys.then(fill_laguna).rule(complaint_of_laguna);
  keys.only("attention_dropout", Node::real(0), "Attention dropout is not supported.")
      .only("qkv_bias", Node::boolean(false), "transformers reads attention_bias instead.")
      .only("gating_types", Node(),
            "Gates per layer are not supported, because transformers has one type for all layers.")
      .only("swa_attention_sink_enabled", Node::boolean(false), "Sinks are not supported by transformers.")
      .only("swa_rope_parameters", Node(), "Set the map sliding_attention of rope_parameters instead.")
      .only("rope_scaling", Node(), "Set rope_parameters instead.");
  return keys;
}

decoder::Model model_of(const LagunaKeys& keys) {
  decoder::Model model = keys.model();
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Attention attention = attention_of(keys, i, keys.sliding_window);
    attention.heads = keys.heads(i);
    attention.gate = {keys.gating == kPerHead ? decoder::OutputGate::Width::each_head
                                              : decoder::OutputGate::Width::each_number,
                      decoder::OutputGate::Function::softplus};
    decoder::Layer layer{attention, keys.mlp(), keys.norm()};
    if (keys.sparse(i)) {
      decoder::Mixture mixture = keys.corrected_mixture();
      mixture.shared_width = keys.shared_width;
      layer.feed_forward = mixture;
    }
    model.layers.push_back(std::move(layer));
  }
  return model;
}

const decoder::Description<LagunaKeys>& laguna() {
  static const decoder::Description<LagunaKeys> kLaguna = {
      "laguna",
      "LagunaForCausalLM",
      laguna_keys(),
      model_of,
      decoder::Files()
          .experts({.correction = "experts.e_score_correction_bias"})
          .renamed("mlp.shared_experts", "mlp.shared_expert"),
      nullptr,
      nullptr,
      decoder::automodel_loss()};
  return kLaguna;
}

}  // namespace

void offer_laguna(Offer& plugin) {
  plugin.model<decoder::Family<laguna>>("laguna", laguna().keys);
}

}  // namespace heddle::mixtures
