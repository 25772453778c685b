// A pipeline schedule as data: the actions of each rank in order, and the interface that plans them.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

// An action of a rank. Letters are PyTorch's: 2F0 is the forward of stage 2 on microbatch 0.
struct Action {
  enum Kind : uint8_t {
    forward,           // F
    backward,          // B: gradients of the input and of the weights
    backward_input,    // I: gradient of the input only
    backward_weight,   // W: gradients of the weights, after I
    send_forward,      // SEND_F: send this stage's output to the next stage
    receive_forward,   // RECV_F: receive this stage's input from the previous stage
    send_backward,     // SEND_B: send the gradient of this stage's input to the previous stage
    receive_backward,  // RECV_B: receive the gradient of this stage's output from the next stage
    unshard,           // the last three kinds apply to a stage, with microbatch 0
    reshard,
    reduce_gradients
  } kind;
  int stage, microbatch;
  bool overlaps_next = false;  // may overlap with the next action of its rank (OVERLAP_F_B)
  bool operator==(const Action&) const = default;
};

using ScheduleTable = std::vector<std::vector<Action>>;  // [rank][step], without idle steps

// Bounds of the number of stages per rank. kAnyNumber in `most` means no upper bound.
struct StagesPerRank {
  int least = 1, most = 1;
};
// No upper bound in StagesPerRank::most.
inline constexpr int kAnyNumber = std::numeric_limits<int>::max();

// A pipeline schedule: a pure function from sizes to an order of actions. Core adds transfers, checks,
// simulates and runs the result.
class HEDDLE_API IPipelineSchedule {
 public:
  virtual ~IPipelineSchedule();
  // Returns the compute actions (F and B, or F, I and W) of every rank. Stages are numbered in the order of
  // the model.
  virtual ScheduleTable plan(int ranks, int stages, int microbatches) const = 0;
  // Returns the rank that has a stage. Every rank has stages / ranks stages.
  virtual int rank_of(int stage, int ranks, int stages) const = 0;
  virtual StagesPerRank stages_per_rank() const { return {}; }
};

namespace schedule {

// Returns rank_of() for every stage: [stage] -> rank. Throws Error{plugin_failed} if a rank is out of range
// or ranks have different numbers of stages.
HEDDLE_API std::vector<int> placement(const IPipelineSchedule& schedule, int ranks, int stages,
                                      const std::string& where);

// Returns the "loop" placement, stage s on rank s % ranks. Throws Error{config} if ranks does not divide
// stages.
HEDDLE_API std::vector<int> loop_placement(int ranks, int stages);
// Returns the "v" placement, stages r and 2 * ranks - 1 - r on rank r. Throws Error{config} unless stages is
// 2 * ranks.
HEDDLE_API std::vector<int> v_placement(int ranks, int stages);

// Returns one cell as PyTorch writes it, without the bracket of an overlap: "2F0", "1RECV_F3", "0UNSHARD".
HEDDLE_API std::string name_of(const Action& action);

// Returns whether the action is F, B, I or W.
constexpr bool computes(Action::Kind kind) {
  return kind <= Action::backward_weight;
}
constexpr bool sends(Action::Kind kind) {
  return kind == Action::send_forward || kind == Action::send_backward;
}
constexpr bool receives(Action::Kind kind) {
  return kind == Action::receive_forward || kind == Action::receive_backward;
}
// Returns the stage at the other end of a send or a receive.
constexpr int peer_stage(const Action& action) {
  const bool up = action.kind == Action::send_forward || action.kind == Action::receive_backward;
  return up ? action.stage + 1 : action.stage - 1;
}
// Returns the matching receive of a send, or the matching send of a receive.
constexpr Action counterpart(const Action& action) {
  constexpr Action::Kind matching[] = {Action::receive_forward, Action::send_forward,
                                       Action::receive_backward, Action::send_backward};
  return {matching[action.kind - Action::send_forward], peer_stage(action), action.microbatch};
}

}  // namespace schedule
// The pipeline section of a configuration, independent of its field names.

// How to round the number of stages if the ranks do not divide it.
enum class StageRounding { refuse, up, down };

// Scaling of the gradients of a step's microbatches, besides the loss's division by label tokens.
enum class GradientScale { none, by_microbatches };

// Settings of the pipeline.
struct PipelineConfig {
  std::string where = "distributed.pipeline";  // the section, for errors
  std::string schedule;                        // name as given, in any case; empty if a table is given
  std::string table;                           // path of a table file (CSV); empty: the schedule plans
  // Times of F, I, W and C in any unit, for a schedule that plans for times. One row for all layers of a
  // rank, or one row per stage. C is the transfer to the next stage. Empty: equal times.
  std::vector<std::vector<double>> times;
  std::optional<double> limit;  // maximum number of microbatches alive per rank, for such a schedule
  int64_t microbatch_size = 1;  // samples
  std::optional<int64_t> layers_per_stage;
  StageRounding rounding = StageRounding::refuse;
  std::optional<std::vector<std::vector<std::string>>>
      modules;        // [stage]: module names; overrides layers_per_stage
  std::string dtype;  // dtype between stages, "bfloat16"; empty: the dtype of the model's outputs
  GradientScale gradients = GradientScale::none;
  bool keep_receive_buffers = false;  // keep them between steps
  int64_t buffer_slack = 0;           // number of buffers kept beyond the schedule's peak
  // The optimizer updates before the gradient norm of all stages is known, and undoes the update if the
  // gradients had to be clipped or the update skipped (Qi et al. 2023, arXiv:2401.10241, section 4).
  bool post_validation = false;
  // If the schedule overlaps two actions, one computes while the other waits for other ranks.
  bool overlap = false;
};

namespace schedule {

// A table from a file in the CSV format of PyTorch's pipeline schedules: one row per rank, one cell per
// action.
struct TableFile {
  std::string path;
  ScheduleTable table;             // only compute actions, or lowered
  std::vector<int> rank_of_stage;  // rank of the first row that has the stage
  int microbatches = 0;
};

// Returns whether a table has actions other than computations: transfers, UNSHARD, RESHARD or REDUCE_GRAD.
HEDDLE_API bool is_lowered(const ScheduleTable& table);

// Reads and checks a file. Throws Error{input} at "FILE:LINE cell N", naming rank, step and action. where:
// the field that names the file, for the error of a missing file.
HEDDLE_API TableFile read_table(const std::string& path, const std::string& where);

// Reads a table from a text. path: for errors.
HEDDLE_API TableFile parse_table(const std::string& text, const std::string& path);

// Returns a schedule that plans exactly this table, with its numbers of ranks, stages and microbatches.
// Throws Error{input} for a lowered table, because core adds the transfers.
HEDDLE_API std::unique_ptr<IPipelineSchedule> make_from_table(TableFile file);

// Returns the rows as read_table() reads them. A compute table is laid out in time: each action takes one
// cell, and a cell is empty while a rank waits. A lowered table is a list.
HEDDLE_API std::string to_csv(const ScheduleTable& table, std::span<const int> rank_of_stage);

// Returns the cells of these rows: [rank][time], "" while a rank waits.
HEDDLE_API std::vector<std::vector<std::string>> table_cells(const ScheduleTable& table,
                                                             std::span<const int> rank_of_stage);

}  // namespace schedule
}  // namespace heddle
