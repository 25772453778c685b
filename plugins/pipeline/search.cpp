// Search for the shortest schedule. It starts from the named schedules and their list schedules for the given
// times. Then it changes the best order slightly, schedules it again, and keeps it if it is not longer.
#include "search.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <random>

#include "heddle/base/error.h"
#include "list_schedule.h"
#include "schedules.h"

namespace heddle::pipeline {
namespace {

constexpr double kSameLength = 1e-9;
constexpr int64_t kWork = 1'000'000;  // actions that the local search schedules: a fraction of a second
constexpr int64_t kTries = 20'000;    // upper bound; a small table has few orders

std::string limit_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

struct Found {
  ScheduleTable table;
  double length = 0, peak = 0;  // peak: microbatches on all stages of a rank

  bool better_than(const Found& other) const {
    if (length < other.length - kSameLength) return true;
    return length < other.length + kSameLength && peak < other.peak - kSameLength;
  }
};

class Search {
 public:
  Search(const Sizes& sizes, std::vector<int> rank_of_stage, const Measured& measured)
      : sizes_(sizes), rank_of_(std::move(rank_of_stage)), measured_(measured) {
    rules_.rank_of_stage = rank_of_;
    rules_.microbatches = sizes.microbatches;
    rules_.costs = measured.stages;
    rules_.memory.assign(sizes.stages, 1.0 / sizes.each());
    rules_.limit = measured.limit;
  }

  ScheduleTable run() {
    for (const Plan plan : named()) start_from(plan);
    if (!best_)
      throw Error(ErrorCode::config, "schedule auto",
                  "no order of " + std::to_string(sizes_.stages) + " stages on " +
                      std::to_string(sizes_.ranks) + " ranks stays within the limit of " +
                      limit_text(measured_.limit) + " microbatches",
                  "raise the limit to at least 1, or use fewer stages per rank");
    improve();
    join_backwards();
    return std::move(best_->table);
  }

 private:
  std::vector<Plan> named() const {
    if (sizes_.each() == 1) return {one_forward_one_backward, zb1p, zb2p, gpipe};
    if (sizes_.each() == 2) return {zbv_zero_bubble, dual_pipe_v, v_half, v_min};
    return {interleaved_zero_bubble, interleaved_1f1b, dfs, looped_bfs};
  }

  void start_from(Plan plan) {
    ScheduleTable table;
    try {
      table = plan(sizes_);
    } catch (const Error&) {
      return;  // the schedule does not support these sizes
    }
    keep(table);
    for (const bool forwards : {false, true})
      for (const double patience : {0.0, 0.5, 1.0}) {
        rules_.forwards_overtake = forwards;
        rules_.patience = patience;
        schedule_in(order_of(table));
      }
  }

  // Returns forwards and input gradients only.
  static ScheduleTable order_of(ScheduleTable table) {
    for (auto& row : table)
      std::erase_if(row, [](const Action& action) { return action.kind == Action::backward_weight; });
    return table;
  }

  bool schedule_in(const ScheduleTable& order) {
    const ScheduleTable table = list_schedule(order, rules_);
    if (table.empty() || !keep(table)) return false;
    best_rules_ = {rules_.forwards_overtake, rules_.patience};
    return true;
  }

  // Keeps the table if it is the best so far, and returns whether it is.
  bool keep(const ScheduleTable& table) {
    Found found{table, 0, 0};
    for (const int peak : schedule::peak_alive(table))
      found.peak = std::max(found.peak, double(peak) / sizes_.each());
    if (found.peak > measured_.limit + kSameLength) return false;
    found.length = schedule::simulate(table, rank_of_, measured_.stages).length;
    if (best_ && !found.better_than(*best_)) return false;
    best_ = std::move(found);
    return true;
  }

  // Moves one action of one rank to an earlier position.
  void improve() {
    std::mt19937_64 random(1);
    const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
    const int64_t actions = int64_t{3} * sizes_.stages * sizes_.microbatches;
    ScheduleTable order = order_of(best_->table);
    for (int64_t left = std::min(kWork / actions, kTries); left > 0; --left) {
      ScheduleTable changed = order;
      for (size_t moves = 1 + below(3); moves > 0; --moves) {
        auto& row = changed[below(changed.size())];
        const size_t from = below(row.size()), by = std::min(from, 1 + below(8));
        std::rotate(row.begin() + (from - by), row.begin() + from, row.begin() + from + 1);
      }
      rules_.forwards_overtake = below(4) == 0 ? below(2) == 1 : best_rules_.forwards_overtake;
      rules_.patience = below(4) == 0 ? 0.25 * double(below(5)) : best_rules_.patience;
      if (schedule_in(changed)) order = order_of(best_->table);
    }
  }

  // Merges adjacent I and W into B, if the schedule does not get longer.
  void join_backwards() {
    ScheduleTable joined;
    for (const auto& row : best_->table) {
      auto& out = joined.emplace_back();
      for (const Action& action : row) {
        const bool pair = action.kind == Action::backward_weight && !out.empty() &&
                          out.back() == Action{Action::backward_input, action.stage, action.microbatch};
        if (pair)
          out.back().kind = Action::backward;
        else
          out.push_back(action);
      }
    }
    const double length = schedule::simulate(joined, rank_of_, measured_.stages).length;
    if (length < best_->length + kSameLength) best_->table = std::move(joined);
  }

  struct Choice {
    bool forwards_overtake = false;
    double patience = 0;
  };
  const Sizes sizes_;
  const std::vector<int> rank_of_;
  const Measured& measured_;
  ListRules rules_;
  std::optional<Found> best_;
  Choice best_rules_;
};

}  // namespace

int Auto::rank_of(int stage, int ranks, int stages) const {
  return stages == 2 * ranks && stage >= ranks ? stages - 1 - stage : stage % ranks;
}

ScheduleTable Auto::plan(int ranks, int stages, int microbatches) const {
  return plan_for(ranks, stages, microbatches, {std::vector<Costs>(stages), Measured().limit});
}

ScheduleTable Auto::plan_for(int ranks, int stages, int microbatches, const Measured& measured) const {
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < stages; ++stage) rank_of_stage.push_back(rank_of(stage, ranks, stages));
  return Search({ranks, stages, microbatches}, std::move(rank_of_stage), measured).run();
}

}  // namespace heddle::pipeline
