// Qwen2-MoE, with a gated shared expert, and Qwen3-MoE. Some layers may have no experts.
#include <algorithm>

#include "families.h"
#include "heddle/decoder/benchmark.h"
#include "keys.h"

namespace heddle::llama {
namespace {

struct QwenMoeKeys : ExpertKeys {
  QwenMoeKeys() {
    vocab_size = 151936, hidden_size = 2048, num_hidden_layers = 24, max_position_embeddings = 32768;
    normalised = false;
  }
  int64_t decoder_sparse_step = 1;
  std::vector<int64_t> dense_layers;  // mlp_only_layers

  bool sparse(int64_t layer) const {
    return (layer + 1) % decoder_sparse_step == 0 &&
           std::find(dense_layers.begin(), dense_layers.end(), layer) == dense_layers.end();
  }
};

struct Qwen2MoeKeys : QwenMoeKeys {
  Qwen2MoeKeys() {
    intermediate_size = 5632, num_attention_heads = 16, usual_key_heads = 16;
    experts = 60, experts_of_token = 4, expert_width = 1408;
  }
  int64_t shared_expert_intermediate_size = 5632;
  bool qkv_bias = true;
};

struct Qwen3MoeKeys : QwenMoeKeys {
  Qwen3MoeKeys() {
    intermediate_size = 6144, usual_key_heads = 4, experts = 128, experts_of_token = 8, expert_width = 768;
  }
};

void read_dense_layers(const Node& given, QwenMoeKeys& keys) {
  if (const Node* layers = model::given(given, "mlp_only_layers")) {
    if (!layers->is_list()) model::refuse(*layers, "expected a list of layers, got " + layers->written());
    for (const Node& layer : layers->items()) {
      const int64_t index = layer.as_integer();
      if (index < 0 || index >= keys.num_hidden_layers)
        model::refuse(layer, "expected a layer from 0 to " + std::to_string(keys.num_hidden_layers - 1) +
                                 ", got " + std::to_string(index));
      keys.dense_layers.push_back(index);
    }
  }
  std::vector<bool> sparse;
  for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer) sparse.push_back(keys.sparse(layer));
  check_layers(given, sparse, "decoder_sparse_step and mlp_only_layers");
}

std::vector<Node::Entry> dense_layers_entry(const QwenMoeKeys& keys) {
  std::vector<Node> layers;
  for (const int64_t layer : keys.dense_layers) layers.push_back(Node::integer(layer));
  return {{"mlp_only_layers", Node::list(std::move(layers))}};
}

template <class Own>
void add_qwen_moe(model::ModelKeys<Own>& keys, Slides slides, const char* max_window_layers) {
  add_used_windows(keys, slides, max_window_layers);
  add_experts(keys, {.normalised = "norm_topk_prob"}, {"num_local_experts"}, true);
  keys.field("decoder_sparse_step", &QwenMoeKeys::decoder_sparse_step, "Every Nth layer has experts.",
             decoder::kSize);
  keys.group({{{"mlp_only_layers", "list or null", "null", "layers", "Layers without experts.", ""}},
              read_dense_layers,
              dense_layers_entry});
}

// Windows in every second layer before max_window_layers.
bool slides_in_turn(int64_t layer, int64_t max_window_layers) {
  return layer % 2 == 0 && layer < max_window_layers;
}

model::ModelKeys<Qwen2MoeKeys> qwen2_moe_keys() {
  auto keys = add_common<Qwen2MoeKeys>("qwen2_moe");
  add_qwen_moe(
      keys, slides_in_turn,
      "Every second layer before this one has the sliding window. No effect without use_sliding_window.");
  keys.field("shared_expert_intermediate_size", &Qwen2MoeKeys::shared_expert_intermediate_size,
             "Width of the shared expert.", decoder::kSize)
      .field("qkv_bias", &Qwen2MoeKeys::qkv_bias, "Whether q, k and v have biases.");
  return keys;
}

model::ModelKeys<Qwen3MoeKeys> qwen3_moe_keys() {
  auto keys = add_common<Qwen3MoeKeys>("qwen3_moe");
  add_attention_bias(keys);
  add_qwen_moe(
      keys, [](int64_t, int64_t) { return true; }, "Ignored: all layers have the sliding window.");
  return keys;
}

decoder::Model model_of(const QwenMoeKeys& keys, decoder::Attention attention,
                        const decoder::Mixture& mixture) {
  decoder::Model model = keys.model();
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    attention.options.window = keys.window_of(i);
    decoder::Layer layer{attention, keys.mlp(), keys.norm()};
    if (keys.sparse(i)) layer.feed_forward = mixture;
    model.layers.push_back(std::move(layer));
  }
  return model;
}

decoder::Model qwen2_moe_model(const Qwen2MoeKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = keys.qkv_bias;
  decoder::Mixture mixture = keys.mixture();
  mixture.shared_width = keys.shared_expert_intermediate_size;
  mixture.shared_gate = true;
  return model_of(keys, attention, mixture);
}

decoder::Model qwen3_moe_model(const Qwen3MoeKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.qkv_bias = attention.output_bias = keys.attention_bias;
  attention.head_norm = decoder::Attention::HeadNorm::each_head;
  return model_of(keys, attention, keys.mixture());
}

const decoder::Description<Qwen2MoeKeys>& qwen2_moe() {
  static const decoder::Description<Qwen2MoeKeys> kQwen2 = {.model_type = "qwen2_moe",
                                                            .architecture = "Qwen2MoeForCausalLM",
                                                            .keys = qwen2_moe_keys(),
                                                            .model = qwen2_moe_model,
                                                            .signature = signature<qwen2_moe>};
  return kQwen2;
}

const decoder::Description<Qwen3MoeKeys>& qwen3_moe() {
  static const decoder::Description<Qwen3MoeKeys> kQwen3 = {.model_type = "qwen3_moe",
                                                            .architecture = "Qwen3MoeForCausalLM",
                                                            .keys = qwen3_moe_keys(),
                                                            .model = qwen3_moe_model,
                                                            .benchmark = decoder::grouped_benchmark,
                                                            .automodel_keys = decoder::automodel_loss(),
                                                            .signature = signature<qwen3_moe>};
  return kQwen3;
}

}  // namespace

void offer_qwen_moe(Offer& plugin) {
  plugin.model<decoder::Family<qwen2_moe>>("qwen2_moe", qwen2_moe().keys);
  plugin.model<decoder::Family<qwen3_moe>>("qwen3_moe", qwen3_moe().keys);
}

}  // namespace heddle::llama
