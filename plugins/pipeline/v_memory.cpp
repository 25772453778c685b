// V-Half and V-Min: stages in a V, with forwards and backwards at distances that keep the lifetime of a
// microbatch short and equal on all ranks. A rank needs about half, or a third, of the memory of 1F1B.
#include <algorithm>

#include "list_schedule.h"
#include "v_row.h"

namespace heddle::pipeline {
namespace {

// Times of one microbatch on a rank, in units of F = I = W of a stage. The next microbatch comes six units
// later. Steps go from rank to rank: away from the first stage, back to it, and the same for the backward.
struct Block {
  int away, back, backward_away, backward_back;
  int turn = 0, begin = 0,
      backward_turn = 0;  // waits at the last rank, before the backward, and at the backward's turn

  std::vector<std::pair<int, Action>> of(int rank, const Sizes& sizes) const {
    const int hops = sizes.ranks - 1, coming = sizes.stages - 1 - rank;
    const int forward = (away + back) * hops + 1 + turn;  // on the last stage
    const int backward = forward + 1 + begin;
    const int last = backward + (backward_away + backward_back) * hops + 1 + backward_turn;
    return {{away * rank, {Action::forward, rank, 0}},
            {forward - back * rank, {Action::forward, coming, 0}},
            {backward + backward_away * rank, {Action::backward_input, coming, 0}},
            {last - backward_back * rank, {Action::backward_input, rank, 0}}};
  }
};
constexpr int kPeriod = 6;

ScheduleTable repeated(const Block& block, const Sizes& sizes, int limit) {
  ScheduleTable order;
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < sizes.stages; ++stage)
    rank_of_stage.push_back(std::min(stage, sizes.stages - 1 - stage));
  for (int rank = 0; rank < sizes.ranks; ++rank) {
    std::vector<std::pair<int, Action>> timed;
    const auto once = block.of(rank, sizes);
    for (int at = 0; at < sizes.microbatches; ++at)
      for (auto [time, action] : once) {
        action.microbatch = at;
        timed.push_back({time + kPeriod * at, action});
      }
    std::stable_sort(timed.begin(), timed.end(), [](auto& one, auto& two) { return one.first < two.first; });
    std::vector<Action>& row = order.emplace_back();
    for (const auto& [time, action] : timed) row.push_back(action);
  }
  const std::vector<Costs> costs(sizes.stages, Costs{1, 2, 1, 1, 0});
  const std::vector<double> memory(sizes.stages, 1);
  ListRules rules{rank_of_stage, sizes.microbatches, costs, memory};
  rules.limit = limit;
  return list_schedule(order, rules);
}

}  // namespace

ScheduleTable v_half(const Sizes& sizes) {
  refuse_other_than_two(sizes, "V-Half");
  return repeated({1, 2, 1, 2, 3, 3, 1}, sizes, sizes.ranks + 2);
}

ScheduleTable v_min(const Sizes& sizes) {
  refuse_other_than_two(sizes, "V-Min");
  return repeated({1, 1, 1, 1, 0, 2, 0}, sizes, 2 * ((sizes.ranks + 1) / 3) + 2);
}

}  // namespace heddle::pipeline
