// Event simulation of the ranks: a rank chooses its next action when it is idle and when data arrives.
#include "list_schedule.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <queue>
#include <utility>

namespace heddle::pipeline {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();
constexpr size_t kWindow = 20;  // number of actions in its row that a rank considers
constexpr double kTimeSlack = 1e-9;

struct Rank {
  std::deque<Action> order,
      weights;  // remaining actions; input gradients whose weight gradients are deferred
  std::vector<Action> row;
  double free = 0, memory = 0;
};

class ListScheduler {
 public:
  ListScheduler(const ScheduleTable& order, const ListRules& rules)
      : rules_(rules), stages_(static_cast<int>(rules.rank_of_stage.size())), ranks_(order.size()) {
    for (size_t rank = 0; rank < order.size(); ++rank) {
      for (Action action : order[rank]) {
        if (action.kind == Action::backward) action.kind = Action::backward_input;
        action.overlaps_next = false;
        ranks_[rank].order.push_back(action);
        ++left_;
      }
      events_.push({0, static_cast<int>(rank)});
    }
    for (auto& ends : ends_) ends.assign(static_cast<size_t>(stages_) * rules.microbatches, kUnknown);
  }

  ScheduleTable run() {
    while (!events_.empty()) {
      const auto [time, rank] = events_.top();
      events_.pop();
      if (ranks_[rank].free <= time + kTimeSlack) choose(ranks_[rank], rank, time);
    }
    if (left_ > 0) return {};
    ScheduleTable table;
    for (Rank& rank : ranks_) table.push_back(std::move(rank.row));
    return table;
  }

 private:
  using Event = std::pair<double, int>;  // a time, and the rank that may have an action to start then

  double& end_time(bool forward, int stage, int microbatch) {
    return ends_[forward ? 0 : 1][static_cast<size_t>(stage) * rules_.microbatches + microbatch];
  }

  // Returns when the input of an action arrives at its rank. kUnknown: not sent yet.
  double arrival(const Action& action) {
    const bool forward = action.kind == Action::forward;
    const int from = action.stage + (forward ? -1 : 1);
    const double own = forward ? 0 : end_time(true, action.stage, action.microbatch);
    if (from < 0 || from >= stages_) return own;
    const double made = end_time(forward, from, action.microbatch);
    const bool here = rules_.rank_of_stage[from] == rules_.rank_of_stage[action.stage];
    return std::max(own, here ? made : made + rules_.costs[std::min(from, action.stage)].transfer);
  }
  bool ready(const Action& action, double time) { return arrival(action) <= time + kTimeSlack; }
  bool fits(const Rank& rank, const Action& action, double reserved = 0) const {
    return action.kind != Action::forward ||
           rank.memory + reserved + rules_.memory[action.stage] <= rules_.limit + kTimeSlack;
  }

  // Returns the index in the row of an action that may start now, or -1.
  int startable(Rank& rank, double time) {
    const size_t window = std::min(kWindow, rank.order.size());
    if (window == 0) return -1;
    if (fits(rank, rank.order[0]) && ready(rank.order[0], time)) return 0;
    if (rules_.backwards_overtake)
      for (size_t at = 1; at < window; ++at)
        if (rank.order[at].kind != Action::forward && ready(rank.order[at], time))
          return static_cast<int>(at);
    double reserved = 0;  // memory of the overtaken forwards
    if (rules_.forwards_overtake)
      for (size_t at = 0; at < window; ++at) {
        const Action& action = rank.order[at];
        if (action.kind != Action::forward) continue;
        if (fits(rank, action, reserved) && ready(action, time)) return static_cast<int>(at);
        reserved += rules_.memory[action.stage];
      }
    return -1;
  }

  void choose(Rank& rank, int index, double time) {
    if (const int at = startable(rank, time); at >= 0) {
      const Action action = rank.order[at];
      rank.order.erase(rank.order.begin() + at);
      return start(rank, index, action, time);
    }
    if (rank.weights.empty()) return;
    const Action weight = rank.weights.front();
    if (!rank.order.empty() && fits(rank, rank.order[0])) {
      const double wait = arrival(rank.order[0]) - time;  // an event wakes the rank at its end
      if (wait < rules_.patience * rules_.costs[weight.stage].backward_weight) return;
    }
    rank.weights.pop_front();
    rank.memory -= rules_.memory[weight.stage];
    add(rank, index, weight, time, rules_.costs[weight.stage].backward_weight);
  }

  void start(Rank& rank, int index, const Action& action, double time) {
    const Costs& costs = rules_.costs[action.stage];
    const bool forward = action.kind == Action::forward;
    add(rank, index, action, time, forward ? costs.forward : costs.backward_input);
    end_time(forward, action.stage, action.microbatch) = rank.free;
    --left_;
    if (forward)
      rank.memory += rules_.memory[action.stage];
    else
      rank.weights.push_back({Action::backward_weight, action.stage, action.microbatch});
    const int to = action.stage + (forward ? 1 : -1);
    if (to < 0 || to >= stages_ || rules_.rank_of_stage[to] == index) return;
    events_.push({rank.free + rules_.costs[std::min(to, action.stage)].transfer, rules_.rank_of_stage[to]});
  }

  void add(Rank& rank, int index, const Action& action, double time, double cost) {
    rank.row.push_back(action);
    rank.free = time + cost;
    events_.push({rank.free, index});
  }

  const ListRules& rules_;
  const int stages_;
  std::vector<Rank> ranks_;
  size_t left_ = 0;
  std::vector<double> ends_[2];  // [forward or backward][stage, microbatch]
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

ScheduleTable list_schedule(const ScheduleTable& order, const ListRules& rules) {
  return ListScheduler(order, rules).run();
}

}  // namespace heddle::pipeline
