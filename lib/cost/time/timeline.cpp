// Finds kinds of memory by the moments of allocation and release, and moves actions to their scheduled times.
#include "lib/cost/time/timeline.h"

#include <algorithm>
#include <set>

namespace heddle {
namespace {

constexpr int kNear = 8;  // number of allocations before a gather that are searched for its result

using Moments = std::vector<std::pair<int64_t, int64_t>>;  // first and last

bool is_within(const Moments& spans, int64_t moment) {
  return std::any_of(spans.begin(), spans.end(),
                     [&](const auto& span) { return span.first <= moment && moment <= span.second; });
}

int64_t moment_of_peak(const ComputeLog& log, int64_t from) {
  std::vector<std::pair<int64_t, int64_t>> changes;  // moment, bytes
  for (const Allocation& one : log.allocations) {
    changes.emplace_back(one.begin, one.bytes);
    if (one.end != Allocation::kAlive) changes.emplace_back(one.end, -one.bytes);
  }
  std::sort(changes.begin(), changes.end());
  int64_t alive = 0, most = -1, at = from;
  for (const auto& [moment, bytes] : changes) {
    alive += bytes;
    if (moment >= from && alive > most) most = alive, at = moment;
  }
  return at;
}

// Returns the indices of the allocations that all-gathers of parameters fill.
std::set<size_t> gathered(const engine::DryStep& step) {
  static const std::set<std::string> of_activations = {"tp", "cp", "ep", "etp"};
  std::vector<size_t> order(step.computed.allocations.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto begin = [&](size_t i) { return step.computed.allocations[i].begin; };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return begin(a) < begin(b); });
  std::set<size_t> out;
  for (const DryEntry& entry : step.step) {
    if (entry.operation != mesh::Operation::all_gather || of_activations.contains(entry.group)) continue;
    auto next =
        std::partition_point(order.begin(), order.end(), [&](size_t i) { return begin(i) < entry.posted; });
    for (int tries = 0; tries < kNear && next != order.begin(); ++tries)
      if (step.computed.allocations[*--next].bytes == entry.bytes) {
        out.insert(*next);
        break;
      }
  }
  return out;
}

}  // namespace

std::map<std::string, double> peak_by_kind(const engine::DryStep& step) {
  Moments forwards, backwards;
  for (const RanAction& ran : step.recording.actions) {
    if (!schedule::computes(ran.action.kind)) continue;
    (ran.action.kind == Action::forward ? forwards : backwards)
        .emplace_back(ran.ready_moment, ran.last_moment);
  }
  int64_t schedule_end = Allocation::kAlive;
  for (const RanPhase& phase : step.recording.phases)
    if (std::string(phase.name) == "schedule") schedule_end = phase.last_moment;
  const std::set<size_t> gathers = gathered(step);
  const int64_t peak = moment_of_peak(step.computed, step.begin);
  std::map<std::string, double> out;
  for (size_t i = 0; i < step.computed.allocations.size(); ++i) {
    const Allocation& one = step.computed.allocations[i];
    if (one.begin > peak || (one.end != Allocation::kAlive && one.end <= peak)) continue;
    const bool is_kept = one.end == Allocation::kAlive || (schedule_end >= 0 && one.end > schedule_end);
    const char* const kind = one.begin < step.begin ? "parameters and optimizer"
                             : gathers.contains(i)  ? "gathered parameters"
                             : is_kept              ? "gradients"
                             : is_within(forwards, one.begin) && is_within(backwards, one.end) ? "activations"
                                                                                               : "buffers";
    out[kind] += static_cast<double>(one.bytes);
  }
  return out;
}

void move_to_schedule(RankTimeline& timeline, const std::vector<TimedAction>& actions,
                      std::span<const Action> row, std::span<const schedule::TimeSpan> times) {
  struct Piece {
    double from, to;    // recorded times of the action
    double begin, end;  // its times in the schedule
  };
  std::vector<Piece> pieces;
  for (const TimedAction& one : actions) {
    const auto found = std::find(row.begin(), row.end(), one.action);
    if (one.call > 0 || found == row.end()) continue;
    const schedule::TimeSpan& time = times[static_cast<size_t>(found - row.begin())];
    pieces.push_back({one.begin, one.end, time.start, time.end});
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.from < b.from; });
  if (pieces.empty()) return;
  // Recorded actions follow each other without a gap, so at a common boundary the end of an interval belongs
  // to the earlier action and its begin to the later one.
  const auto moved = [&](double time, bool is_end) {
    const auto next = std::partition_point(pieces.begin(), pieces.end(), [&](const Piece& piece) {
      return is_end ? piece.from < time : piece.from <= time;
    });
    if (next == pieces.begin()) return std::max(0.0, next->begin - (next->from - time));
    const Piece& piece = *std::prev(next);
    if (time <= piece.to && piece.to > piece.from)
      return piece.begin + (time - piece.from) / (piece.to - piece.from) * (piece.end - piece.begin);
    const double after = piece.end + (time - piece.to);
    return next == pieces.end() ? after : std::min(after, next->begin);
  };
  for (Busy& span : timeline.spans) {
    span.begin = moved(span.begin, /*is_end=*/false);
    span.end = moved(span.end, /*is_end=*/true);
  }
  for (MemoryPoint& point : timeline.memory) point.seconds = moved(point.seconds, /*is_end=*/true);
  timeline.seconds = moved(timeline.seconds, /*is_end=*/true);
}

}  // namespace heddle
