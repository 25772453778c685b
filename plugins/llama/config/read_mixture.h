// The keys that types with experts have in common.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "heddle/config/node.h"
#include "model_config.h"
#include "model_type.h"

namespace heddle::llama {

// Keys of the experts' number and of the router: how many experts a token has, the losses that balance them,
// its dtype.
void add_balance_keys(std::vector<Key>& keys);

// The number of experts by either name, and num_experts_per_tok.
void read_experts(const Node& keys, ModelConfig& config);

// decoder_sparse_step and mlp_only_layers.
void read_sparse_layers(const Node& keys, ModelConfig& config);

// The auxiliary losses, router_dtype, fake_balanced_gate.
void read_balance(const Node& keys, Mixture& mixture);

// What read_balance reads, and num_experts_per_tok.
void write_balance(const Mixture& mixture, nlohmann::ordered_json& out);

}  // namespace heddle::llama
