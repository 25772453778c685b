// What the types with latent attention have in common.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "../config/model_type.h"

namespace heddle::llama {

// Defaults: the widths of DeepSeek's latents; a router of sigmoids with groups and a correction bias.
void set_latent(ModelConfig& config);
void set_corrected(ModelConfig& config);
void set_deepseek_v3(ModelConfig& config);

// Attention, and routing by sigmoids; without the keys that say which layers have experts.
void read_corrected(const Node& keys, ModelConfig& config);
void write_corrected(const ModelConfig& config, nlohmann::ordered_json& out);

// first_k_dense_replace and moe_layer_freq.
void read_first_dense(const Node& keys, ModelConfig& config);
// mlp_layer_types: a word, dense or sparse, for each layer. Throws Error{config}.
void read_type_list(const Node& types, ModelConfig& config);
void write_type_list(const ModelConfig& config, nlohmann::ordered_json& out);

// DeepSeek-V3.2 and GLM-5, whose attention is sparse, and the keys of their indexers.
std::vector<ModelType> sparse_latent_types();
void add_indexer_keys(std::vector<Key>& keys);

}  // namespace heddle::llama
