// Identity of a model's files, which distinguishes the weights of one base from those of another.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "heddle/base/export.h"
#include "lib/run/model/find_model.h"

namespace heddle {

struct PreparedModel;

struct ModelIdentity {
  std::string place;  // the resolved directory of the weights
  int64_t bytes = 0;  // of all tensors
  // Checksum over the names, dtypes, shapes and sampled bytes of all tensors, sorted by name, independent of
  // how tensors are distributed over files. For a sharded model: checksum of its manifests.
  std::string digest;
  // format in which transforms hold the values: the setting of quantization; empty: unchanged
  std::string form = {};
  bool operator==(const ModelIdentity&) const = default;
};

// Whether both have the same values, independent of their place.
bool are_alike(const ModelIdentity& a, const ModelIdentity& b);

// Reads headers and at most 8 samples of 1 KiB per tensor, and tensors of up to 8 KiB whole. For more than
// 4096 tensors it reads fewer samples, at least one per tensor. Includes the adapters of the place. Throws
// Error{input} for damaged files and Error{io} for disk errors.
HEDDLE_API ModelIdentity identity_of(const ModelPlace& place);

// Returns the models that results depend on but checkpoints do not contain: "model", if transforms leave its
// parameters out, and the other model of a transform under the transform's name.
std::map<std::string, ModelIdentity> identities_of(const PreparedModel& model);

// Returns digests of all files that a rank reads for the model, keyed by names for messages: "weights of the
// model", its adapters, the other models of transforms, config.json, tokenizer and chat templates. Reads
// weights as identity_of() does unless `known` has them (identities_of()), and throws the same errors.
std::map<std::string, std::string> file_digests_of(const PreparedModel& model,
                                                   const std::map<std::string, ModelIdentity>& known);

}  // namespace heddle
