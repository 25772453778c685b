// Keys of the models with latent attention.
#pragma once

#include <vector>

#include "../config/model_type.h"

namespace heddle::llama {

std::vector<Key> keys_of_latent();

}  // namespace heddle::llama
