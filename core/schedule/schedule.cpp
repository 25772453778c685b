// The interfaces' destructors, which anchor their vtables; placements of stages on ranks, and the text of an
// action.
#include "heddle/schedule/schedule.h"

#include "heddle/base/error.h"
#include "heddle/schedule/simulate.h"

namespace heddle {

IPipelineSchedule::~IPipelineSchedule() = default;

namespace schedule {
namespace {

void refuse_unequal(const std::vector<int>& rank_of_stage, int ranks, const std::string& where) {
  const int stages = static_cast<int>(rank_of_stage.size());
  std::vector<int> held(ranks, 0);
  for (int stage = 0; stage < stages; ++stage) {
    const int rank = rank_of_stage[stage];
    if (rank < 0 || rank >= ranks)
      throw Error(ErrorCode::plugin_failed, where,
                  "rank_of puts stage " + std::to_string(stage) + " on rank " + std::to_string(rank) +
                      ", and the ranks are 0 to " + std::to_string(ranks - 1));
    ++held[rank];
  }
  for (int rank = 0; rank < ranks; ++rank)
    if (held[rank] * ranks != stages)
      throw Error(ErrorCode::plugin_failed, where,
                  "rank_of puts " + std::to_string(held[rank]) + " of " + std::to_string(stages) +
                      " stages on rank " + std::to_string(rank) + "; each of " + std::to_string(ranks) +
                      " ranks holds the same number");
}

}  // namespace

std::vector<int> placement(const IPipelineSchedule& schedule, int ranks, int stages,
                           const std::string& where) {
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < stages; ++stage)
    rank_of_stage.push_back(schedule.rank_of(stage, ranks, stages));
  refuse_unequal(rank_of_stage, ranks, where);
  return rank_of_stage;
}

std::vector<int> loop_placement(int ranks, int stages) {
  if (ranks < 1 || stages < 1 || stages % ranks != 0)
    throw Error(
        ErrorCode::config, "schedule",
        "Total stages " + std::to_string(stages) + " must be divisible by PP size " + std::to_string(ranks));
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < stages; ++stage) rank_of_stage.push_back(stage % ranks);
  return rank_of_stage;
}

std::vector<int> v_placement(int ranks, int stages) {
  if (loop_placement(ranks, stages).size() != 2 * static_cast<size_t>(ranks))
    throw Error(ErrorCode::config, "schedule",
                "the V placement holds exactly 2 stages on a rank, and " + std::to_string(stages) +
                    " stages on " + std::to_string(ranks) + " ranks are " + std::to_string(stages / ranks));
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < stages; ++stage)
    rank_of_stage.push_back(stage < ranks ? stage : stages - 1 - stage);
  return rank_of_stage;
}

std::string name_of(const Action& action) {
  constexpr const char* kWords[] = {"F",      "B",      "I",       "W",       "SEND_F",     "RECV_F",
                                    "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD"};
  std::string name = std::to_string(action.stage) + kWords[action.kind];
  return action.kind < Action::unshard ? name + std::to_string(action.microbatch) : name;
}

}  // namespace schedule
}  // namespace heddle
