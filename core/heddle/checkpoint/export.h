// Writing a model as a Hugging Face directory: config.json and safetensors that transformers reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/build.h"

namespace heddle::checkpoint {

struct HfExport {
  std::filesystem::path directory;  // made where it is missing; files of an older export are replaced
  std::string config_json;          // written as it stands
  int64_t max_shard_bytes = int64_t{5} << 30;  // more than that: several files and an index
  std::string key;                             // a word used once in the run, "final"
};

// Called by every rank; rank 0 writes, one whole parameter at a time in its stored dtype. A failure on rank 0
// throws the same Error{io} on every rank.
HEDDLE_API void export_hf(Stages& stages, const DeviceMesh& mesh, const HfExport& what);

}  // namespace heddle::checkpoint
