// A model on disk as the other kind: a sharded one, or one with adapters, as a Hugging Face directory, or
// back.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "heddle/mesh/rendezvous.h"
#include "heddle/model/family.h"
#include "lib/run/model/prepared_model.h"

namespace heddle {

struct Conversion {
  ModelPlace from;
  const PreparedModel* merged = nullptr;         // the model of `from` where that has adapters
  const checkpoint::HfOrigin* origin = nullptr;  // of a Hugging Face directory; null: it is read
  std::filesystem::path to;                      // a directory that is not there, or is empty
  std::shared_ptr<const ModelSpec> model;        // of from's config.json
  std::optional<c10::ScalarType> dtype;          // of a Hugging Face directory; empty: as it was
  std::optional<uint64_t> max_shard_size;        // bytes of one of its files; empty: as they were, or 5 GiB
};

// Writes into a stage beside `to`, and publishes it whole. A collective of all ranks, which share the work.
// Returns what was made, in words. Throws Error{usage | input | io}.
std::string convert(const Conversion& conversion, Rendezvous& rendezvous);

}  // namespace heddle
