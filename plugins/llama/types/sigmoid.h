// Types whose router takes sigmoids, with a bias that chooses: a type a file, one group.
#pragma once

#include <vector>

#include "../config/model_type.h"

namespace heddle::llama {

ModelType glm4_moe_type();
ModelType minimax_m2_type();
ModelType bailing_moe_type();

// Each adds the keys that it alone has.
void add_minimax_m2_keys(std::vector<Key>& keys);
void add_bailing_moe_keys(std::vector<Key>& keys);

// A router of sigmoids with a correction bias whose weights sum to 1.
void set_sigmoid_router(Mixture& mixture);
// gate_bias_update_factor, and the losses, which transformers does not have for these types: off where
// router_aux_loss_type does not name one.
void read_sigmoid_router(const Node& keys, Mixture& mixture);
void write_sigmoid_router(const Mixture& mixture, nlohmann::ordered_json& out);

}  // namespace heddle::llama
