// The keys of a config.json that an export has to say anew.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "lib/checkpoint/huggingface/hf_plan.h"

namespace heddle::checkpoint {

// The text as it stands, unless it says another dtype than the tensors have: then dtype (and torch_dtype,
// where it is there) say that. Readable by transformers 4: with torch_dtype beside dtype, and rope_theta and
// rope_scaling beside rope_parameters. Throws Error{input} for a text that is not a JSON object.
std::string config_for(const std::string& config_json, std::optional<c10::ScalarType> dtype,
                       HfChoice::Config keys);

}  // namespace heddle::checkpoint
