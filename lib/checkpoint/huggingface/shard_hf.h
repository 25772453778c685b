// Converts the weights of a Hugging Face directory to a sharded one: the model's parameters as in memory,
// other tensors unchanged.
#pragma once

#include <filesystem>
#include <string>

#include "heddle/base/export.h"
#include "heddle/checkpoint/safetensors.h"
#include "heddle/mesh/rendezvous.h"
#include "heddle/model/family.h"
#include "lib/checkpoint/quantized/base_weights.h"

namespace heddle::checkpoint {

// Quantized tensors are dequantized to bfloat16. Called by every rank; `key` is used once in a run. Each rank
// maps an equal share of the rows and writes it into the existing DIRECTORY; values and dtypes of others are
// unchanged. Every failure is thrown on every rank: Error{io}, and Error{input} for a tensor without
// elements, which a sharded directory cannot have.
HEDDLE_API void shard_hf(const BaseWeights& weights, const std::filesystem::path& directory,
                         Rendezvous& rendezvous, const std::string& key, const ModelSpec* model = nullptr);

}  // namespace heddle::checkpoint
