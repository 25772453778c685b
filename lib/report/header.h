// Header of a run, printed before the first step.
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
  std::string schedule;  // name, or file of its table
  int stages = 1, microbatches = 1;
  int64_t microbatch_size = 1;  // samples
};

// Values that the header prints.
struct RunHeader {
  struct Transform {
    std::string name, note;  // note: the transform's own description; empty: none
    bool freezes = false;
  };
  struct Overrides {
    std::vector<std::pair<std::string, std::string>> keys;  // of config.json, values as JSON
    bool are_exported = false;
  };
  struct Batch {
    int64_t global = 1, local = 1, row_length = 0;  // samples; tokens
    bool is_ragged = false;  // rows have the length of the longest row of their microbatch
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
  std::string dequantized;          // quantization format of its files; empty: not quantized
  Overrides overrides;
  std::string routers;  // router keys of AutoModel's modules; empty: none
  std::vector<Transform> transforms;
  std::string data;  // size and order of the data set
  Batch batch;
  std::optional<RunPipeline> pipeline;
  Steps steps;
  std::string skipped;  // line about keys without effect
  Saves saves = Saves::nothing;
  Exports exports = Exports::never;       // with the last checkpoint, or with each
  std::filesystem::path last_checkpoint;  // its future directory
  std::filesystem::path resumes;          // checkpoint; empty: start at the first step
  int64_t done_steps = 0;                 // steps done in that checkpoint

  std::string text(const ModelSize& size) const;
};

// Returns the warnings before the first step, without the word "warning": `known`, and those about the model
// on this rank's device.
std::vector<std::string> header_warnings(const RunHeader& header, std::vector<std::string> known,
                                         const ModelSize& size, const engine::Model& model);

// Returns the line of the device, or of a CPU's threads if they share cores.
std::string device_text(const engine::Model& model, int local_ranks);

}  // namespace heddle
