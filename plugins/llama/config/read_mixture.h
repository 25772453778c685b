// The keys that types with experts have in common.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "heddle/config/node.h"
#include "model_config.h"
#include "model_type.h"

namespace heddle::llama {

// The names of the number of experts, the type's own first.
void add_expert_keys(std::vector<Key>& keys, const std::string& first_default,
                     const std::vector<std::string>& names);

// Keys of the router: how many experts a token has, the losses that balance them, its dtype.
void add_balance_keys(std::vector<Key>& keys);

// The number of experts by any of its names (n_routed_experts, num_experts, num_local_experts), and
// num_experts_per_tok.
void read_experts(const Node& keys, ModelConfig& config);

// decoder_sparse_step and mlp_only_layers.
void read_sparse_layers(const Node& keys, ModelConfig& config);

// The auxiliary losses, router_dtype, fake_balanced_gate.
void read_balance(const Node& keys, Mixture& mixture);

// Throws Error{config} where the layers that have experts are none. `of`: the keys that say which.
void check_layers(const Node& keys, const ModelConfig& config, const std::string& of);

// Of types whose input is not multiplied by noise.
void refuse_jitter(const Node& keys);

// A finite number of at least 0.
double not_negative(const Node& keys, const char* key, double otherwise);

// A number from 0 to `most` of a key that may be null, which is 0.
int64_t count_or(const Node& keys, const char* key, int64_t otherwise, int64_t most);
// Throws Error{config} where the key has another word: transformers does not read it.
void expect_text(const Node& keys, const char* key, const std::string& only, const std::string& type);

// n_group and topk_group, after the numbers of experts and of choices. `experts`: the key of the former.
void read_groups(const Node& keys, Mixture& mixture, const std::string& experts = "n_routed_experts");

// What read_balance reads, and num_experts_per_tok.
void write_balance(const Mixture& mixture, nlohmann::ordered_json& out);

}  // namespace heddle::llama
