// The keys of a config.json that an export updates.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "lib/checkpoint/huggingface/hf_plan.h"

namespace heddle::checkpoint {

// The text, with dtype (and torch_dtype, if present) updated if the tensors have another dtype. Readable by
// transformers 4: with torch_dtype beside dtype, and rope_theta and rope_scaling beside rope_parameters.
// Throws Error{input} for a text that is not a JSON object.
std::string config_for(const std::string& config_json, std::optional<c10::ScalarType> dtype,
                       HfChoice::Config keys);

}  // namespace heddle::checkpoint
