// Replays a dry step on the streams of a device.
#include "lib/cost/time/rank_time.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lib/cost/time/collective_time.h"
#include "lib/cost/time/operator_time.h"

namespace heddle {
namespace {

using mesh::Operation;

struct Event {
  enum Kind : uint8_t { work, post, wait, begin_action, end_action, end_phase } kind;
  size_t place;
};

// Whether the entry moves a tensor between stages, for which the schedule's simulator waits.
bool is_transfer(const DryEntry& entry) {
  return entry.group == kPipelineAxis &&
         (entry.operation == Operation::send || entry.operation == Operation::receive);
}

// Whether the matching entry of the same group has the time of the transfer. All ranks of a ring send and
// receive at the same time, and wait for what they receive.
bool is_counted_elsewhere(const DryEntry& entry) {
  return entry.operation == (entry.group == kPipelineAxis ? Operation::receive : Operation::send);
}

class Replay {
 public:
  Replay(const engine::DryStep& step, const MachineFile& machine, bool with_timeline)
      : step_(step),
        machine_(machine),
        with_timeline_(with_timeline),
        ends_(step.step.size()),
        begins_(step.recording.actions.size()) {
    for (const auto& [name, ranks] : step.groups) places_[name] = group_place(ranks, machine);
  }

  RankTime run() {
    double schedule_end = 0;
    if (with_timeline_) collect_changes();
    for (const auto& [moment, event] : events()) {
      switch (event.kind) {
        case Event::work:
          work(step_.computed.calls[event.place]);
          break;
        case Event::post:
          post(event.place);
          break;
        case Event::wait:
          wait(event.place);
          break;
        case Event::begin_action:
          begins_[event.place] = device_;
          waited_ = {};
          worked_ = {};
          break;
        case Event::end_action:
          end_action(event.place);
          break;
        case Event::end_phase:
          if (std::string(step_.recording.phases[event.place].name) == "schedule") schedule_end = device_;
      }
    }
    out_.seconds = device_;
    for (const double end : ends_) out_.seconds = std::max(out_.seconds, end);
    out_.after_schedule = out_.seconds - schedule_end;
    return std::move(out_);
  }

 private:
  // Sorted by time.
  std::vector<std::pair<int64_t, Event>> events() const {
    std::vector<std::pair<int64_t, Event>> out;
    const auto add = [&](int64_t moment, Event::Kind kind, size_t place) {
      if (moment >= 0) out.push_back({moment, {kind, place}});
    };
    for (size_t i = 0; i < step_.computed.calls.size(); ++i)
      if (step_.computed.calls[i].moment >= step_.begin) add(step_.computed.calls[i].moment, Event::work, i);
    for (size_t i = 0; i < step_.step.size(); ++i) {
      if (step_.step[i].on_host || step_.step[i].group_size == 1) continue;
      add(step_.step[i].posted, Event::post, i);
      add(step_.step[i].waited, Event::wait, i);
    }
    for (size_t i = 0; i < step_.recording.actions.size(); ++i) {
      add(step_.recording.actions[i].ready_moment, Event::begin_action, i);
      add(step_.recording.actions[i].last_moment, Event::end_action, i);
    }
    for (size_t i = 0; i < step_.recording.phases.size(); ++i)
      add(step_.recording.phases[i].last_moment, Event::end_phase, i);
    std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return out;
  }

  void work(const OperatorCall& call) {
    host_ += machine_.launch_seconds;
    const double begin = std::max(host_, device_);
    if (host_ > device_) add_work(kHost, host_ - device_);
    double seconds = operator_seconds(call, machine_) + machine_.kernel_seconds;
    const double beside = std::clamp(communicating_until_ - begin, 0.0, seconds);
    seconds += beside * machine_.collective_interference;
    device_ = begin + seconds;
    add_work(kind_of(call), seconds);
    note("compute", call.name, kind_of(call), begin, device_);
    if (with_timeline_) note_memory(call.moment);
  }

  void add_work(const char* kind, double seconds) {
    out_.by_kind[kind] += seconds;
    worked_[kind] += seconds;
  }

  void post(size_t place) {
    const DryEntry& entry = step_.step[place];
    host_ += machine_.launch_seconds;
    if (is_counted_elsewhere(entry)) return;
    const GroupPlace& at = places_[entry.group];
    const double seconds = collective_seconds(entry, at, machine_);
    double begin = std::max(host_, device_);
    if (is_transfer(entry)) {
      out_.transfer = std::max(out_.transfer, seconds);
    } else {
      double &stream = streams_[entry.group], &links = links_[at.nodes > 1 ? 1 : 0];
      begin = std::max({begin, stream, links});
      stream = links = begin + seconds;
      communicating_until_ = std::max(communicating_until_, begin + seconds);
    }
    ends_[place] = begin + seconds;
    out_.traffic[entry.group] += seconds;
    note(entry.group, mesh::name_of(entry.operation), "collectives", begin, ends_[place]);
  }

  void wait(size_t place) {
    const DryEntry& entry = step_.step[place];
    if (is_transfer(entry) || ends_[place] <= device_) return;
    out_.waits[entry.group] += ends_[place] - device_;
    waited_[entry.group] += ends_[place] - device_;
    device_ = ends_[place];
  }

  void end_action(size_t place) {
    const RanAction& ran = step_.recording.actions[place];
    if (schedule::computes(ran.action.kind))
      out_.actions.push_back({ran.action, ran.call, begins_[place], device_, waited_, worked_});
  }

  void note(const std::string& stream, const char* name, const char* kind, double begin, double end) {
    if (with_timeline_) out_.timeline.push_back({stream, name, kind, begin, end});
  }

  void note_memory(int64_t moment) {
    int64_t most = alive_;
    for (; next_change_ < changes_.size() && changes_[next_change_].first <= moment; ++next_change_) {
      alive_ += changes_[next_change_].second;
      most = std::max(most, alive_);
    }
    out_.memory.push_back({device_, most});
  }

  // Collects allocations and releases in the order of their moments.
  void collect_changes() {
    for (const Allocation& one : step_.computed.allocations) {
      changes_.emplace_back(one.begin, one.bytes);
      if (one.end != Allocation::kAlive) changes_.emplace_back(one.end, -one.bytes);
    }
    std::sort(changes_.begin(), changes_.end());
  }

  const engine::DryStep& step_;
  const MachineFile& machine_;
  const bool with_timeline_;
  std::map<std::string, GroupPlace> places_;
  std::map<std::string, double> streams_;  // times at which streams become free
  std::array<double, 2> links_{};      // times at which the links become free: within the node, between nodes
  std::vector<double> ends_, begins_;  // end times of collectives; start times of actions
  std::map<std::string, double> waited_, worked_;  // waits and work in the current action
  double host_ = 0, device_ = 0, communicating_until_ = 0;
  std::vector<std::pair<int64_t, int64_t>> changes_;  // moments and bytes of allocations and releases
  size_t next_change_ = 0;
  int64_t alive_ = 0;
  RankTime out_;
};

}  // namespace

RankTime rank_time(const engine::DryStep& step, const MachineFile& machine, bool with_timeline) {
  return Replay(step, machine, with_timeline).run();
}

}  // namespace heddle
