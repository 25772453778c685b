// The header of a run: what a person is told before the first step, and of a run that was stopped.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/config/setup.h"
#include "heddle/engine/engine.h"
#include "lib/cost/model_size.h"

namespace heddle {

// How a batch goes through the stages of a pipeline.
struct RunPipeline {
  std::string schedule;  // its name, or the file of its table
  int stages = 1, microbatches = 1;
  int64_t microbatch_size = 1;  // samples
};

// What was computed before the first step, as the header prints it.
struct RunHeader {
  struct Transform {
    std::string name, note;  // note: what it says of itself; empty: nothing
    bool freezes = false;
  };
  struct Overrides {
    std::vector<std::pair<std::string, std::string>> keys;  // of config.json, with their values as JSON
    bool are_exported = false;
  };
  struct Batch {
    int64_t global = 1, local = 1, row_length = 0;  // samples; tokens
    bool is_ragged = false;                         // rows are as long as the longest of their microbatch
  };
  struct Steps {
    int64_t total = 0, per_epoch = 0;
    std::optional<int64_t> max_steps, num_epochs;  // as given
  };
  enum class Saves { benchmark, nothing, at_the_end, on_the_way };
  enum class Exports { never, final, every };

  Setup setup;
  std::string model_type;
  c10::ScalarType stored = c10::ScalarType::Float, products = c10::ScalarType::Float;
  std::filesystem::path directory;  // of a pretrained model; empty: random weights
  std::string dequantized;          // the form of its files; empty: none that is quantized
  Overrides overrides;
  std::string routers;  // what AutoModel's modules add to them; empty: nothing
  std::vector<Transform> transforms;
  std::string data;  // sizes and order of the data set, in words
  Batch batch;
  std::optional<RunPipeline> pipeline;
  Steps steps;
  std::string skipped;  // the line of the keys that change nothing
  Saves saves = Saves::nothing;
  Exports exports = Exports::never;       // of the last checkpoint, or of each
  std::filesystem::path last_checkpoint;  // the directory that it will have
  std::filesystem::path resumes;          // a checkpoint; empty: from the first step
  int64_t done_steps = 0;                 // in it

  std::string text(const ModelSize& size) const;
};

// What a person is warned of before the first step, without the word "warning": `known`, and what the model
// on this rank's device gives reason to.
std::vector<std::string> header_warnings(const RunHeader& header, std::vector<std::string> known,
                                         const ModelSize& size, const engine::Model& model);

// The line of the device, or of a CPU's threads where they share cores.
std::string device_text(const engine::Model& model, int local_ranks);

}  // namespace heddle
