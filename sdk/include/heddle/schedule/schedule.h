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

// One thing a rank does. The letters are PyTorch's: 2F0 is the forward of stage 2 on microbatch 0.
struct Action {
  enum Kind : uint8_t {
    forward,           // F
    backward,          // B: gradients of the input and of the weights at once
    backward_input,    // I: of the input alone
    backward_weight,   // W: of the weights, after I
    send_forward,      // SEND_F: this stage's output goes to the next stage
    receive_forward,   // RECV_F: this stage's input comes from the stage before
    send_backward,     // SEND_B: the gradient of this stage's input goes to the stage before
    receive_backward,  // RECV_B: the gradient of this stage's output comes from the next stage
    unshard,           // the last three apply to a stage; their microbatch is 0
    reshard,
    reduce_gradients
  } kind;
  int stage, microbatch;
  bool overlaps_next = false;  // may run together with the next action of its rank (OVERLAP_F_B)
  bool operator==(const Action&) const = default;
};

using ScheduleTable = std::vector<std::vector<Action>>;  // [rank][time], without idle cells

// How many stages one rank may hold; `most` at the largest int: any number.
struct StagesPerRank {
  int least = 1, most = 1;
};
inline constexpr int kAnyNumber = std::numeric_limits<int>::max();

// A pure function from sizes to an order of work. Core adds transfers, checks, simulates and runs it.
class HEDDLE_API IPipelineSchedule {
 public:
  virtual ~IPipelineSchedule();
  // The compute actions (F and B, or F, I and W) of every rank. Stages are numbered in the order of the
  // model.
  virtual ScheduleTable plan(int ranks, int stages, int microbatches) const = 0;
  // The rank that holds a stage; every rank holds stages / ranks of them.
  virtual int rank_of(int stage, int ranks, int stages) const = 0;
  virtual StagesPerRank stages_per_rank() const { return {}; }
};

namespace schedule {

// rank_of for every stage: [stage] -> rank. Throws Error{plugin_failed} when a rank is out of range or the
// ranks hold unequal numbers of stages.
HEDDLE_API std::vector<int> placement(const IPipelineSchedule& schedule, int ranks, int stages,
                                      const std::string& where);

// Stage s on rank s % ranks: "loop". Throws Error{config} when ranks do not divide stages.
HEDDLE_API std::vector<int> loop_placement(int ranks, int stages);
// Rank r holds the stages r and 2 * ranks - 1 - r: "v". Throws Error{config} unless every rank holds two.
HEDDLE_API std::vector<int> v_placement(int ranks, int stages);

// "2F0", "1RECV_F3", "0UNSHARD": one cell as PyTorch writes it (without the bracket of an overlap).
HEDDLE_API std::string name_of(const Action& action);

// A compute action: one of F, B, I, W.
constexpr bool computes(Action::Kind kind) {
  return kind <= Action::backward_weight;
}
constexpr bool sends(Action::Kind kind) {
  return kind == Action::send_forward || kind == Action::send_backward;
}
constexpr bool receives(Action::Kind kind) {
  return kind == Action::receive_forward || kind == Action::receive_backward;
}
// The stage at the other end of a send or a receive.
constexpr int peer_stage(const Action& action) {
  const bool up = action.kind == Action::send_forward || action.kind == Action::receive_backward;
  return up ? action.stage + 1 : action.stage - 1;
}
// The receive that a send pairs with, on the peer's stage, or the send of a receive.
constexpr Action counterpart(const Action& action) {
  constexpr Action::Kind other[] = {Action::receive_forward, Action::send_forward, Action::receive_backward,
                                    Action::send_backward};
  return {other[action.kind - Action::send_forward], peer_stage(action), action.microbatch};
}

}  // namespace schedule
// What a pipeline block of the YAML asks of core, with its own field names forgotten.

// Where the number of stages goes that the ranks do not divide.
enum class StageRounding { refuse, up, down };

// How the gradients of a step's microbatches are scaled, besides the loss's own division by label tokens.
enum class GradientScale { none, by_microbatches };

struct PipelineConfig {
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
  // The optimizer updates before the gradient norm of all stages is known, and undoes that if the gradients
  // were to be clipped or the update skipped (Qi et al. 2023, arXiv:2401.10241, section 4).
  bool post_validation = false;
  // Of two actions that the schedule overlaps, one computes while the other waits for other ranks.
  bool overlap = false;
};

namespace schedule {

// A table in a file, in the CSV form of PyTorch's pipeline schedules: one row per rank, one cell per action.
struct TableFile {
  std::string path;
  ScheduleTable table;             // compute actions alone, or lowered
  std::vector<int> rank_of_stage;  // by the first row that has the stage
  int microbatches = 0;
};

// Whether a table holds more than computations: transfers, UNSHARD, RESHARD or REDUCE_GRAD.
HEDDLE_API bool is_lowered(const ScheduleTable& table);

// Reads and checks a file. Throws Error{input} at "FILE:LINE cell N", naming rank, step and action.
// where: what named the file, for the error of a missing one.
HEDDLE_API TableFile read_table(const std::string& path, const std::string& where);

// The same from a text; path: for the errors.
HEDDLE_API TableFile parse_table(const std::string& text, const std::string& path);

// The table as a schedule that plans exactly this: its ranks, stages and microbatches. A lowered table is
// refused with Error{input}: core adds the transfers.
HEDDLE_API std::unique_ptr<IPipelineSchedule> make_from_table(TableFile file);

// Rows as read_table reads them. A compute table is laid out in time, every action one cell wide, with an
// empty cell where a rank waits; a lowered one is a list.
HEDDLE_API std::string to_csv(const ScheduleTable& table, std::span<const int> rank_of_stage);

// The cells of those rows: [rank][time], "" where a rank waits.
HEDDLE_API std::vector<std::vector<std::string>> cells_of(const ScheduleTable& table,
                                                          std::span<const int> rank_of_stage);

}  // namespace schedule
}  // namespace heddle
