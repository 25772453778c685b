// Defaults and readers that the types with latent attention share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "../config/model_type.h"

namespace heddle::llama {

// Sets the defaults of DeepSeek's latent widths, and a sigmoid router with groups and a correction bias.
void set_latent(ModelConfig& config);
void set_corrected(ModelConfig& config);
void set_deepseek_v3(ModelConfig& config);

// Reads attention and sigmoid routing, but not the keys that determine the layers with experts.
void read_corrected(const Node& keys, ModelConfig& config);
void write_corrected(const ModelConfig& config, nlohmann::ordered_json& out);

// Reads first_k_dense_replace and moe_layer_freq.
void read_first_dense(const Node& keys, ModelConfig& config);
// Reads mlp_layer_types: dense or sparse for each layer. Throws Error{config}.
void read_type_list(const Node& types, ModelConfig& config);
void write_type_list(const ModelConfig& config, nlohmann::ordered_json& out);

// Returns DeepSeek-V3.2 and GLM-5, which have sparse attention, and the keys of their indexers.
std::vector<ModelType> sparse_latent_types();
void add_indexer_keys(std::vector<Key>& keys);

}  // namespace heddle::llama
