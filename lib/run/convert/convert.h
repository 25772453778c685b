// Conversion of a model on disk: a sharded model, or one with adapters, to a Hugging Face directory, or back.
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
  const PreparedModel* merged = nullptr;         // the model of `from` if it has adapters
  const checkpoint::HfOrigin* origin = nullptr;  // of a Hugging Face directory; null: read from `from`
  std::filesystem::path to;                      // must be absent or an empty directory
  std::shared_ptr<const ModelSpec> model;        // read from config.json of `from`
  std::optional<c10::ScalarType> dtype;          // dtype of a Hugging Face directory; empty: unchanged
  // maximum bytes per file of a Hugging Face directory; empty: as before, or 5 GiB
  std::optional<uint64_t> max_shard_size;
};

// Writes into a stage next to `to`, then publishes the stage. A collective: all ranks share the work. Returns
// a description of the result. Throws Error{usage | input | io}.
std::string convert(const Conversion& conversion, Rendezvous& rendezvous);

}  // namespace heddle
