// Writing a model as a Hugging Face directory: config.json and safetensors that transformers reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "heddle/base/export.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::checkpoint {

struct HfExport {
  std::filesystem::path sharded;    // the directory that write_sharded() has written
  std::filesystem::path directory;  // made where it is missing; files of an older export are replaced
  std::string config_json;          // written as it stands
  int64_t max_shard_bytes = int64_t{5} << 30;  // more than that: several files and an index
};

// Called by every rank once the sharded files of all ranks are there; `key` is used once in a run. No rank
// holds more than one parameter whole. Every failure is thrown on every rank: Error{io} for what cannot be
// written, Error{input} for what cannot be read.
HEDDLE_API void export_hf(const HfExport& what, Rendezvous& meeting, const std::string& key);

}  // namespace heddle::checkpoint
