// Computes the time of a step from the times of ranks.
#include "lib/cost/time/step_time.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "heddle/schedule/simulate.h"

namespace heddle {
namespace {

// Actions of one kind on one stage: the shortest time, and the total excess of the others.
struct Actions {
  TimedAction shortest;
  double excess = 0;
};
using ActionsOfRank = std::map<std::pair<int, Action::Kind>, Actions>;

ActionsOfRank actions_of(const RankTime& rank) {
  ActionsOfRank out;
  for (const TimedAction& one : rank.actions) {
    const auto [found, is_first] = out.try_emplace({one.action.stage, one.action.kind}, Actions{one});
    if (!is_first && one.seconds() < found->second.shortest.seconds()) found->second.shortest = one;
  }
  for (const TimedAction& one : rank.actions) {
    Actions& actions = out.at({one.action.stage, one.action.kind});
    actions.excess += one.seconds() - actions.shortest.seconds();
  }
  return out;
}

double& cost_of_kind(schedule::Costs& costs, Action::Kind kind) {
  return kind == Action::forward          ? costs.forward
         : kind == Action::backward       ? costs.backward
         : kind == Action::backward_input ? costs.backward_input
                                          : costs.backward_weight;
}

// Adds `times` repetitions of the shortest actions to the parts of a step.
void add_actions(const ActionsOfRank& actions, double times, StepTime& out) {
  for (const auto& [key, one] : actions) {
    for (const auto& [group, seconds] : one.shortest.waits) out.waits[group] += times * seconds;
    for (const auto& [kind, seconds] : one.shortest.by_kind) out.by_kind[kind] += times * seconds;
  }
}

}  // namespace

std::string StepTime::limit() const {
  const auto host = by_kind.find(kHost);
  std::vector<std::pair<double, std::string>> parts = {{bubble, "bubble"},
                                                       {host == by_kind.end() ? 0 : host->second, "host"}};
  for (const auto& [group, one] : waits) parts.emplace_back(one, group);
  const auto most = std::max_element(parts.begin(), parts.end());
  // Computation is unavoidable, so another part is the limit from a fifth of the step on.
  return most->first > seconds / 5 ? most->second : "compute";
}

std::string seconds_text(double seconds) {
  const char* const format = seconds < 1 ? "%.3g ms" : seconds < 1000 ? "%.3g s" : "%.0f s";
  char text[32];
  std::snprintf(text, sizeof(text), format, seconds < 1 ? seconds * 1e3 : seconds);
  return text;
}

std::vector<std::pair<std::string, double>> StepTime::parts() const {
  std::vector<std::pair<std::string, double>> out;
  const auto add = [&](std::string name, double part) {
    if (part > 0) out.emplace_back(std::move(name), part);
  };
  for (const auto& [kind, part] : by_kind) add(kind, part);
  add("the bubble", bubble);
  for (const auto& [group, part] : waits)
    add(group == "update" ? "reductions and the update" : "collectives of " + group, part);
  return out;
}

StepTime step_time(const RankTime& rank, int64_t dry_passes, int64_t passes) {
  StepTime out{rank.seconds, 0, rank.by_kind, rank.waits};
  if (passes <= dry_passes) return out;
  const ActionsOfRank actions = actions_of(rank);
  const auto more = static_cast<double>(passes - dry_passes);
  for (const auto& [key, one] : actions) out.seconds += more * one.shortest.seconds();
  add_actions(actions, more, out);
  return out;
}

std::vector<schedule::Costs> stage_costs(std::span<const RankTime* const> ranks, size_t stages) {
  std::vector<schedule::Costs> costs(stages);
  for (const RankTime* const rank : ranks)
    for (const auto& [key, one] : actions_of(*rank)) {
      schedule::Costs& cost = costs[static_cast<size_t>(key.first)];
      cost_of_kind(cost, key.second) = one.shortest.seconds();
      cost.transfer = rank->transfer;
    }
  return costs;
}

StepTime step_time(const PipelineTimes& times) {
  const std::vector<schedule::Costs> costs = stage_costs(times.ranks, times.rank_of_stage.size());
  double after = 0, busiest = -1;
  ActionsOfRank longest;
  for (const RankTime* const rank : times.ranks) {
    const ActionsOfRank actions = actions_of(*rank);
    double rest = rank->after_schedule, busy = 0;
    for (const auto& [key, one] : actions) {
      rest += one.excess;
      busy += one.shortest.seconds();
    }
    after = std::max(after, rest);
    if (busy <= busiest) continue;
    busiest = busy;
    longest = actions;
  }
  int microbatches = 0;
  for (const auto& row : times.table)
    for (const Action& action : row) microbatches = std::max(microbatches, action.microbatch + 1);
  const schedule::Simulation run = schedule::simulate(times.table, times.rank_of_stage, costs);
  const auto passes = static_cast<double>(times.passes);
  StepTime out;
  out.seconds = run.length * passes + after;
  out.bubble = std::max(0.0, run.length - busiest * microbatches) * passes;
  add_actions(longest, microbatches * passes, out);
  out.waits["update"] += after;
  return out;
}

}  // namespace heddle
