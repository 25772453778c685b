// Converts recordings to trace events. Spans of the rank's main thread are nested by time; other threads have
// lanes of their own.
#include "lib/run/trace/rank_events.h"

#include <map>
#include <thread>

namespace heddle {
namespace {

using schedule::ChromeTrace;
using schedule::kActionLane;
using std::to_string;

constexpr int kFirstOperators = 1000;  // greater than the lanes of any rank's threads

bool passes_on(Action::Kind kind) {
  return schedule::computes(kind) && kind != Action::backward_weight;
}

class RankEvents {
 public:
  RankEvents(const DeviceMesh& mesh, std::span<const int> rank_of_stage, TraceTime time)
      : time_(time),
        rank_of_(rank_of_stage),
        process_(mesh.rank("world")),
        pipeline_(mesh.ranks(kPipelineAxis).front()) {
    trace_.process(process_, rank_name(mesh), process_);
    trace_.thread(process_, kActionLane, "steps and actions");
    lanes_[std::this_thread::get_id()] = kActionLane;
  }

  void add(const TracedStep& step) {
    span("step " + to_string(step.step + 1), "step", step.begin, step.end);
    const auto& phases = step.recording.phases;
    if (!phases.empty()) span("read data", "phase", step.begin, phases.front().begin);
    for (const RanPhase& phase : phases) span(phase.name, "phase", phase.begin, phase.end);
    for (const RanAction& ran : step.recording.actions) add(ran, step.step);
  }

  void add(const TracedCall& call) {
    const std::string arguments =
        "{\"bytes\":" + to_string(call.bytes) +
        (call.peer < 0 ? "" : ",\"peer\":" + to_string(call.peer) + ",\"tag\":" + to_string(call.tag)) + "}";
    trace_.flight(process_, next_flight_++, call.name, "in flight", time_(call.posted), time_(call.done),
                  arguments);
    trace_.span(process_, lane_of(call.waiter), "wait " + call.name, "wait", time_(call.waited),
                time_(call.done), arguments);
  }

  void add(const RanOperator& ran) {
    const auto [found, is_new] =
        operator_lanes_.emplace(ran.thread, kFirstOperators + static_cast<int>(operator_lanes_.size()));
    if (is_new) trace_.thread(process_, found->second, "operators of thread " + to_string(ran.thread));
    trace_.span(process_, found->second, ran.name, "operator", time_(ran.begin), time_(ran.end));
  }

  const std::string& text() const { return trace_.text(); }

 private:
  void span(std::string_view name, std::string_view category, RanAction::Time begin, RanAction::Time end,
            std::string_view arguments = {}, int lane = kActionLane) {
    trace_.span(process_, lane, name, category, time_(begin), time_(end), arguments);
  }

  void add(const RanAction& ran, int64_t step) {
    const std::string name = schedule::name_of(ran.action);
    const bool computes = schedule::computes(ran.action.kind);
    const int lane = lane_of(ran.thread);
    if (ran.ready > ran.begin) span("wait " + name, "wait", ran.begin, ran.ready, {}, lane);
    span(name, computes ? "compute" : "schedule", ran.ready, ran.end,
         "{\"stage\":" + to_string(ran.action.stage) + ",\"microbatch\":" + to_string(ran.action.microbatch) +
             ",\"call\":" + to_string(ran.call) + "}",
         lane);
    const bool forward = ran.action.kind == Action::forward || ran.action.kind == Action::send_forward;
    if (schedule::sends(ran.action.kind))
      trace_.arrow_from(transfer(ran, step, ran.action.stage, forward), inside(ran));
    const int from = ran.action.stage + (forward ? -1 : 1);
    if (passes_on(ran.action.kind) && elsewhere(from, ran.action.stage))
      trace_.arrow_to(transfer(ran, step, from, forward), inside(ran));
  }

  bool elsewhere(int stage, int own) const {
    return stage >= 0 && stage < static_cast<int>(rank_of_.size()) && rank_of_[stage] != rank_of_[own];
  }

  ChromeTrace::End inside(const RanAction& ran) {
    return {process_, lane_of(ran.thread), 0.5 * (time_(ran.ready) + time_(ran.end))};
  }

  std::string transfer(const RanAction& ran, int64_t step, int from, bool forward) const {
    return to_string(pipeline_) + "." + to_string(step) + "." + to_string(ran.call) + (forward ? "F" : "B") +
           to_string(from) + "." + to_string(ran.action.microbatch);
  }

  int lane_of(std::thread::id thread) {
    const auto [found, is_new] = lanes_.emplace(thread, static_cast<int>(lanes_.size()));
    if (is_new) trace_.thread(process_, found->second, "thread " + to_string(found->second));
    return found->second;
  }

  ChromeTrace trace_;
  const TraceTime time_;
  const std::span<const int> rank_of_;
  const int process_, pipeline_;  // rank; first rank of its pipeline
  std::map<std::thread::id, int> lanes_;
  std::map<uint64_t, int> operator_lanes_;
  int64_t next_flight_ = 0;
};

}  // namespace

double TraceTime::operator()(RanAction::Time time) const {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  return 1e-3 * static_cast<double>(since - origin_);
}

std::string rank_name(const DeviceMesh& mesh) {
  std::string places;
  for (const Axis& axis : mesh.axes())
    if (axis.size > 1)
      places += (places.empty() ? " (" : ", ") + axis.name + " " + to_string(mesh.rank(axis.name));
  return "rank " + to_string(mesh.rank("world")) + (places.empty() ? "" : places + ")");
}

std::string events_of_rank(const RankRecord& record, const DeviceMesh& mesh,
                           std::span<const int> rank_of_stage, TraceTime time) {
  RankEvents events(mesh, rank_of_stage, time);
  for (const TracedStep& step : record.steps) events.add(step);
  for (const TracedCall& call : record.calls) events.add(call);
  for (const RanOperator& ran : record.operators) events.add(ran);
  return events.text();
}

}  // namespace heddle
