// Types with a sigmoid router and a correction bias: one group, one file per type.
#pragma once

#include <vector>

#include "../config/model_type.h"

namespace heddle::llama {

ModelType glm4_moe_type();
ModelType minimax_m2_type();
ModelType bailing_moe_type();

// Each function adds the keys that only its type has.
void add_minimax_m2_keys(std::vector<Key>& keys);
void add_bailing_moe_keys(std::vector<Key>& keys);

// Sets a sigmoid router with a correction bias and normalized weights.
void set_sigmoid_router(Mixture& mixture);
// Reads gate_bias_update_factor and the losses. transformers has no losses for these types, so they are off
// unless router_aux_loss_type is set.
void read_sigmoid_router(const Node& keys, Mixture& mixture);
void write_sigmoid_router(const Mixture& mixture, nlohmann::ordered_json& out);

}  // namespace heddle::llama
