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
  std::filesystem::path sharded;  // the directory written by write_sharded()
  std::filesystem::path
      finer;  // another one with more precise values of some tensors under "master.NAME"; or empty
  std::filesystem::path directory;  // created if missing; published by the caller (publish.h)
  HfOrigin origin;                  // names of files, dtypes, and files that are copied
  std::shared_ptr<const ModelSpec> model = nullptr;  // null: each parameter is the tensor of its name
  HfChoice choice = {};
  enum class Writers { all, first } writers = Writers::all;  // ranks that write tensors
  std::chrono::duration<double> limit = std::chrono::minutes(30);
};

// Called by every rank once the sharded files of all ranks exist; `key` is used once in a run. Rank 0
// lays out the files; then each rank reads, converts and writes an equal share of the bytes in place, a range
// of rows at a time, so no rank holds the whole model or a whole large tensor. A tensor whose dtype changes
// is rounded once from its most precise values. Every failure is thrown on every rank: Error{io} if writing
// fails or takes longer than the limit, Error{input} if reading fails. Returns the layout.
HEDDLE_API HfPlan export_hf(const HfExport& request, Rendezvous& rendezvous, const std::string& key);

}  // namespace heddle::checkpoint
