// Writing a model as a Hugging Face directory: config.json and safetensors that transformers reads.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "heddle/base/export.h"
#include "heddle/mesh/rendezvous.h"
#include "lib/checkpoint/huggingface/hf_origin.h"
#include "lib/checkpoint/huggingface/hf_plan.h"

namespace heddle::checkpoint {

struct HfExport {
  std::filesystem::path sharded;  // the directory that write_sharded() has written
  std::filesystem::path finer;    // another, with finer values of some tensors under "master.NAME"; or empty
  std::filesystem::path directory;  // made where it is missing; to be published by its caller (publish.h)
  HfOrigin origin;                  // names of files, dtypes, and what is carried over
  std::shared_ptr<const ModelSpec> model = nullptr;  // null: each parameter is the tensor of its name
  HfChoice choice = {};
  enum class Writers { all, first } writers = Writers::all;  // ranks that write tensors
  std::chrono::duration<double> limit = std::chrono::minutes(30);
};

// Called by every rank once the sharded files of all ranks are there; `key` is used once in a run. Rank 0
// lays out the files; then each rank reads, converts and writes an equal share of the bytes in place, a
// stretch of rows at a time, so no rank holds the model, nor a large tensor whole. A tensor whose dtype
// changes is taken from its finest values and rounded once. Every failure is thrown on every rank: Error{io}
// for what cannot be written or takes longer than the limit, Error{input} for what cannot be read. Returns
// what was laid out.
HEDDLE_API HfPlan export_hf(const HfExport& what, Rendezvous& meeting, const std::string& key);

}  // namespace heddle::checkpoint
