// Keys that all types with experts share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "heddle/config/node.h"
#include "model_config.h"
#include "model_type.h"

namespace heddle::llama {

// Adds the names of the number of experts, the type's own name first.
void add_expert_keys(std::vector<Key>& keys, const std::string& first_default,
                     const std::vector<std::string>& names);

// Adds the keys of the router: the number of experts per token, the balance losses and its dtype.
void add_balance_keys(std::vector<Key>& keys);

// Reads the number of experts by any of its names (n_routed_experts, num_experts, num_local_experts), and
// num_experts_per_tok.
void read_experts(const Node& keys, ModelConfig& config);

// Reads decoder_sparse_step and mlp_only_layers.
void read_sparse_layers(const Node& keys, ModelConfig& config);

// Reads the auxiliary losses, router_dtype and fake_balanced_gate.
void read_balance(const Node& keys, Mixture& mixture);

// Throws Error{config} if no layer has experts. `of`: the keys that determine the layers.
void check_layers(const Node& keys, const ModelConfig& config, const std::string& of);

// Refuses router jitter, for types that do not support it.
void refuse_jitter(const Node& keys);

// Reads a finite number of at least 0.
double not_negative(const Node& keys, const char* key, double otherwise);

// Reads an integer from 0 to `most`. null means 0.
int64_t count_or(const Node& keys, const char* key, int64_t otherwise, int64_t most);
// Throws Error{config} if the key is not `only`, because transformers does not read the key.
void expect_text(const Node& keys, const char* key, const std::string& only, const std::string& type);

// Reads n_group and topk_group. Call it after read_experts(). `experts`: key of the number of experts.
void read_groups(const Node& keys, Mixture& mixture, const std::string& experts = "n_routed_experts");

// Writes the keys of read_balance(), and num_experts_per_tok.
void write_balance(const Mixture& mixture, nlohmann::ordered_json& out);

}  // namespace heddle::llama
