// Keys of config.json that these model types share, and the model description built from them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/decoder/mixture_keys.h"

namespace heddle::qwen_next {

// Keys with the defaults of qwen3_next.
struct Keys : decoder::CommonKeys, decoder::MixtureKeys {
  Keys();

  bool attention_bias = false;
  std::optional<std::vector<std::string>> layer_types;
  int64_t full_attention_interval = 4;
  int64_t linear_num_key_heads = 16, linear_num_value_heads = 32;
  int64_t linear_key_head_dim = 128, linear_value_head_dim = 128, linear_conv_kernel_dim = 4;

  int64_t shared_expert_intermediate_size = 512, decoder_sparse_step = 1;
  std::optional<std::vector<int64_t>> mlp_only_layers;

  bool attends(int64_t layer) const;
  bool has_experts(int64_t layer) const;
};

// Describes why the keys are invalid; empty if they are valid.
std::string complaint_of_layers(const Keys& keys);
std::string complaint_of_experts(const Keys& keys);

// Adds the keys except those of experts. Own: Keys with the defaults of a model type.
template <class Own>
void add_layer_keys(model::ModelKeys<Own>& keys, const std::string& model_type) {
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, model_type, {.partial = true});
  decoder::add_dropout(keys);
  keys.field("attention_bias", &Keys::attention_bias, "Whether q, k, v and o have biases.")
      .field("layer_types", &Keys::layer_types,
             "Type of each layer: linear_attention or full_attention. null: derived from "
             "full_attention_interval.")
      .field("full_attention_interval", &Keys::full_attention_interval,
             "Every Nth layer uses attention. All other layers use a delta net.", decoder::kSize)
      .field("linear_num_key_heads", &Keys::linear_num_key_heads,
             "Number of query and key heads of a delta net.", decoder::kSize)
      .field("linear_num_value_heads", &Keys::linear_num_value_heads,
             "Number of value heads of a delta net, a multiple of linear_num_key_heads.", decoder::kSize)
      .field("linear_key_head_dim", &Keys::linear_key_head_dim,
             "Width of a query or key head of a delta net.", decoder::kSize)
      .field("linear_value_head_dim", &Keys::linear_value_head_dim, "Width of a value head of a delta net.",
             decoder::kSize)
      .field("linear_conv_kernel_dim", &Keys::linear_conv_kernel_dim,
             "Kernel size of the convolution of queries, keys and values, in tokens.",
             Range<int64_t>{1, 1024})
      .rule(complaint_of_layers)
      .only("hidden_act", Node::text("silu"), "Activation function of MLPs, experts and convolutions.");
}

// Adds the keys of experts. by_layer: some layers may have no experts, and routing weights may stay
// unnormalized.
template <class Own>
void add_expert_keys(model::ModelKeys<Own>& keys, bool by_layer) {
  decoder::add_mixture(keys,
                       {.normalised = by_layer ? "norm_topk_prob" : nullptr, .fewest = 0, .logits = true});
  keys.field("shared_expert_intermediate_size", &Keys::shared_expert_intermediate_size,
             "Width of the shared expert, which has a gate.", decoder::kSize)
      .rule(complaint_of_experts);
  if (!by_layer) return;
  keys.field("decoder_sparse_step", &Keys::decoder_sparse_step, "Every Nth layer has experts.",
             decoder::kSize)
      .field("mlp_only_layers", &Keys::mlp_only_layers, "Layers that have an MLP instead of experts.");
}

decoder::Model model_of(const Keys& keys);
double benchmark(const BenchmarkSizes& sizes);

}  // namespace heddle::qwen_next
