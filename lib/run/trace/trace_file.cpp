// Builds the trace file from the parts of the ranks: JSON events, and rows of numbers for actions.
#include "lib/run/trace/trace_file.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "lib/run/trace/measured.h"
#include "lib/transport/launch/process.h"

namespace heddle {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::nanoseconds;

constexpr int kSimulatedProcesses = 1'000'000;  // process ids above those of all ranks

int64_t nanoseconds_of(RanAction::Time time) {
  return std::chrono::duration_cast<nanoseconds>(time.time_since_epoch()).count();
}

// Returns the name of this machine's clock: ranks with equal names share a clock.
std::string clock_name() {
  const std::string table = mesh::this_process().table;
  char host[256] = {};
  if (table.empty()) gethostname(host, sizeof host - 1);
  return table.empty() ? host : table;
}

Json row_of(const RanAction& ran) {
  return {static_cast<int>(ran.action.kind),
          ran.action.stage,
          ran.action.microbatch,
          ran.action.overlaps_next,
          ran.call,
          nanoseconds_of(ran.begin),
          nanoseconds_of(ran.ready),
          nanoseconds_of(ran.end),
          std::chrono::duration_cast<nanoseconds>(ran.away).count(),
          ran.overlapped};
}

RanAction action_of(const Json& row) {
  const auto time = [&](size_t at) { return RanAction::Time(nanoseconds(row[at].get<int64_t>())); };
  RanAction ran;
  ran.action = {static_cast<Action::Kind>(row[0].get<int>()), row[1], row[2], row[3]};
  ran.call = row[4];
  ran.begin = time(5), ran.ready = time(6), ran.end = time(7);
  ran.away = nanoseconds(row[8].get<int64_t>());
  ran.overlapped = row[9];
  return ran;
}

RankPart unpack_rank(const std::string& text) {
  const Json json = Json::parse(text);
  RankPart part{json["events"], json["pipeline"], {}};
  for (const Json& step : json["steps"]) {
    StepActions& actions = part.steps.emplace_back();
    actions.step = step["step"];
    for (const Json& row : step["actions"]) actions.actions.push_back(action_of(row));
  }
  return part;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

Json costs_json(const std::vector<schedule::Costs>& costs) {
  Json out = Json::array();
  for (const schedule::Costs& one : costs)
    out.push_back({{"forward", 1e3 * one.forward},
                   {"backward", 1e3 * one.backward},
                   {"backward_input", 1e3 * one.backward_input},
                   {"backward_weight", 1e3 * one.backward_weight},
                   {"transfer", 1e3 * one.transfer}});
  return out;
}

// Adds the measured and the simulated times of one step. `free`: when the simulated ranks have finished the
// previous step, which may take longer than the measured one.
void add_step(Json& about, schedule::ChromeTrace& trace, std::string& summary, int64_t step,
              const std::vector<std::vector<RanAction>>& ranks, std::span<const int> rank_of_stage,
              double& free) {
  const MeasuredPipeline measured = measure(ranks, rank_of_stage);
  auto first = RanAction::Time::max();
  for (const auto& rank : ranks)
    for (const RanAction& ran : rank)
      if (schedule::computes(ran.action.kind)) first = std::min(first, ran.ready);
  const double begin = std::max(free, 1e-3 * static_cast<double>(nanoseconds_of(first)));
  free = begin + 1e6 * measured.simulated.length;
  schedule::add_simulation(trace, measured.table, rank_of_stage, measured.costs,
                           {"simulated ", kSimulatedProcesses, begin, 1e6});
  about["steps"].push_back({{"step", step + 1},
                            {"microbatches", measured.microbatches},
                            {"length_ms", 1e3 * measured.length},
                            {"simulated_length_ms", 1e3 * measured.simulated.length},
                            {"idle", measured.idle},
                            {"simulated_idle", measured.simulated.idle},
                            {"stages_ms", costs_json(measured.costs)}});
  summary += "\n          step " + std::to_string(step + 1) + ": the pipeline is idle " +
             percent(measured.mean_idle()) + " of the time, " + percent(measured.mean_simulated_idle()) +
             " in the simulation with the measured times";
}

// Whether all ranks of the pipeline recorded the same step at this index.
bool same_step(const std::vector<RankPart>& parts, const std::vector<int>& pipeline, size_t at) {
  return std::all_of(pipeline.begin(), pipeline.end(), [&](int rank) {
    return at < parts[rank].steps.size() && parts[rank].steps[at].step == parts[pipeline[0]].steps[at].step;
  });
}

std::string steps_text(const std::vector<StepActions>& steps) {
  if (steps.empty()) return "no step: the run ended before the first one to trace";
  const std::string first = std::to_string(steps.front().step + 1);
  return steps.size() == 1 ? "step " + first
                           : "steps " + first + " to " + std::to_string(steps.back().step + 1);
}

}  // namespace

int64_t common_origin(Rendezvous& rendezvous, const std::vector<TracedStep>& steps) {
  rendezvous.barrier("trace rendezvous");
  const int64_t now = nanoseconds_of(std::chrono::steady_clock::now());
  const Json mine = {clock_name(), now, steps.empty() ? now : nanoseconds_of(steps.front().begin)};
  const auto of_first = [](std::span<const std::string> texts) { return std::vector{texts.front()}; };
  const Json first = Json::parse(rendezvous.meet("trace clock", mine.dump(), of_first));
  const int64_t ahead = first[0] == mine[0] ? 0 : now - first[1].get<int64_t>();
  return first[2].get<int64_t>() + ahead;
}

std::vector<StepActions> actions_of(const std::vector<TracedStep>& steps, TraceTime time) {
  const auto counted = [&](RanAction::Time at) {
    return RanAction::Time(nanoseconds(std::llround(1e3 * time(at))));
  };
  std::vector<StepActions> out;
  for (const TracedStep& step : steps) {
    StepActions& one = out.emplace_back();
    one.step = step.step;
    for (RanAction ran : step.recording.actions) {
      ran.begin = counted(ran.begin), ran.ready = counted(ran.ready), ran.end = counted(ran.end);
      one.actions.push_back(ran);
    }
  }
  return out;
}

std::string pack_rank(const RankPart& part) {
  Json steps = Json::array();
  for (const StepActions& step : part.steps) {
    Json rows = Json::array();
    for (const RanAction& ran : step.actions) rows.push_back(row_of(ran));
    steps.push_back({{"step", step.step}, {"actions", std::move(rows)}});
  }
  const Json json = {{"events", part.events}, {"pipeline", part.pipeline}, {"steps", std::move(steps)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

TraceFile make_trace_file(std::span<const std::string> texts, std::span<const int> rank_of_stage,
                          const std::string& schedule) {
  std::vector<RankPart> parts;
  for (const std::string& text : texts) parts.push_back(unpack_rank(text));
  TraceFile file;
  Json about = {{"schedule", schedule},
                {"ranks", parts.size()},
                {"rank_of_stage", std::vector<int>(rank_of_stage.begin(), rank_of_stage.end())},
                {"steps", Json::array()}};
  file.summary = steps_text(parts.front().steps) + " of " + std::to_string(parts.size()) +
                 (parts.size() == 1 ? " rank" : " ranks") + "; open it in ui.perfetto.dev";
  schedule::ChromeTrace simulated;
  double free = 0;
  const std::vector<int>& pipeline = parts.front().pipeline;
  for (size_t at = 0; pipeline.size() > 1 && same_step(parts, pipeline, at); ++at) {
    std::vector<std::vector<RanAction>> ranks;
    for (const int rank : pipeline) ranks.push_back(parts[rank].steps[at].actions);
    add_step(about, simulated, file.summary, parts[pipeline[0]].steps[at].step, ranks, rank_of_stage, free);
  }
  std::string events;
  for (const RankPart& part : parts) events += part.events;
  file.text = schedule::chrome_file(events + simulated.text(),
                                    about.dump(-1, ' ', false, Json::error_handler_t::replace));
  return file;
}

}  // namespace heddle
