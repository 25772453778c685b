// The weights of a Hugging Face directory as a sharded one: a model's parameters as it holds them, and every
// other tensor as it is.
#pragma once

#include <filesystem>
#include <string>

#include "heddle/base/export.h"
#include "heddle/checkpoint/safetensors.h"
#include "heddle/mesh/rendezvous.h"
#include "heddle/model/family.h"

namespace heddle::checkpoint {

// Called by every rank; `key` is used once in a run. Each rank maps an equal share of the rows and writes it
// into DIRECTORY, which is there; values and dtypes stay as they are. Every
// failure is thrown on every rank:
// Error{io}, and Error{input} for a tensor without elements, which a sharded directory does not hold.
HEDDLE_API void shard_hf(const HfWeights& weights, const std::filesystem::path& directory,
                         Rendezvous& meeting, const std::string& key, const ModelSpec* model = nullptr);

}  // namespace heddle::checkpoint
