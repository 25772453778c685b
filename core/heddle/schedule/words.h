// What a pipeline block of the YAML asks of core, with its own field names forgotten.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

// Where the number of stages goes that the ranks do not divide.
enum class StageRounding { refuse, up, down };

// How the gradients of a step's microbatches are scaled, besides the loss's own division by label tokens.
enum class GradientScale { none, by_microbatches };

struct PipelineWords {
  std::string where = "distributed.pipeline";  // of the block, for errors
  std::string schedule;                        // as given, in any case; empty when a table is given
  std::string table;                           // the path of a table's file (CSV); empty: the schedule plans
  // Rows F, I, W, C in one unit of time, for a schedule that plans for times: one row of all layers of a
  // rank, or one of each stage; C is the transfer to the next stage. Empty: every time is equal.
  std::vector<std::vector<double>> times;
  std::optional<double> limit;  // microbatches that a rank may keep alive, for such a schedule
  int64_t microbatch_size = 1;  // samples
  std::optional<int64_t> layers_per_stage;
  StageRounding rounding = StageRounding::refuse;
  std::optional<std::vector<std::vector<std::string>>>
      modules;        // [stage]: names of modules; wins over layers
  std::string dtype;  // between stages, "bfloat16"; empty: what the model's forward gives
  GradientScale gradients = GradientScale::none;
  bool keep_receive_buffers = false;  // between steps
  int64_t buffer_slack = 0;           // how many are kept beyond the schedule's peak
};

}  // namespace heddle
