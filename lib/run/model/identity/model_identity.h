// The identity of a model's files: what tells the values of one base from those of another.
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
  // Checksum of names, dtypes and shapes and of bytes of every tensor, in the order of the names: how the
  // tensors are distributed over files does not matter. A sharded model has the checksums of its manifests.
  std::string digest;
  std::string form = {};  // how transforms hold the values: the setting of quantization; empty: as they are
  bool operator==(const ModelIdentity&) const = default;
};

// Whether both have the same values, wherever they are.
bool are_alike(const ModelIdentity& a, const ModelIdentity& b);

// Reads headers and at most 8 stretches of 1 KiB of each tensor; tensors of up to 8 KiB whole. Of more than
// 4096 tensors it reads fewer stretches, at least one of each. Adapters of the place are part of it. Throws
// Error{input} for damaged files, Error{io} where the disk fails.
HEDDLE_API ModelIdentity identity_of(const ModelPlace& place);

// The models that checkpoints of a run do not hold though its numbers depend on them: "model", where
// transforms leave its parameters out, and the other model of a transform by the transform's name.
std::map<std::string, ModelIdentity> identities_of(const PreparedModel& model);

// Digests of all files that a rank reads for the model, by names for messages: "weights of the model", its
// adapters, the other models of transforms, config.json, tokenizer and chat templates. Reads the weights as
// identity_of() does, unless `known` has them (identities_of()), and throws the same errors.
std::map<std::string, std::string> file_digests_of(const PreparedModel& model,
                                                   const std::map<std::string, ModelIdentity>& known);

}  // namespace heddle
