// Compares schedules: plans, checks, simulates and sorts each with one and with two stages per rank, if
// supported.
#include "trainer/cli/schedule/schedule_compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/schedule/simulate.h"
#include "lib/drawing/drawing.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kMostEach = 2;  // stages per rank

struct Compared {
  std::string name;
  int each = 1;
  double length = 0, idle = 0, peak = 0;  // peak: live microbatches on all layers of a rank
  int transfers = 0;                      // of all ranks
  schedule::Drawing drawing;              // set if SVG is requested
  std::string refusal;                    // why the sizes are not supported; other members are then unset
};

void simulate_one(const IPipelineSchedule& made, const ScheduleCommand& command, const GivenTimes& times,
                  Compared& out) {
  const int stages = command.ranks * out.each;
  const ScheduleTable table = plan_of(made, command, times, stages);
  const auto placement = schedule::placement(made, command.ranks, stages, out.name);
  const schedule::Simulation run =
      schedule::simulate(table, placement, measured_of(command, times, stages).stages);
  out.length = run.length;
  out.idle = std::accumulate(run.idle.begin(), run.idle.end(), 0.0) / command.ranks;
  out.peak = double(*std::max_element(run.peak.begin(), run.peak.end())) / out.each;
  for (const auto& row : schedule::lower(table, placement))
    out.transfers += static_cast<int>(std::count_if(
        row.begin(), row.end(), [](const Action& action) { return schedule::sends(action.kind); }));
  if (command.format == ScheduleCommand::Format::svg)
    out.drawing = {out.name, table, placement, command.microbatches};
  if (command.limit && out.peak > *command.limit) out.refusal = "its peak is above the limit";
}

std::vector<Compared> compared_all(const ScheduleCommand& command, const GivenTimes& times,
                                   PluginRegistry& plugins) {
  std::vector<Compared> all;
  std::set<const OfferedSchedule*> seen;  // visited schedules, because a schedule has several names
  for (const std::string& name : plugins.names("schedule")) {
    const OfferedSchedule* offered = plugins.schedule(name);
    if (offered == nullptr || !seen.insert(offered).second) continue;
    const auto made = offered->make();
    const StagesPerRank takes = made->stages_per_rank();
    for (int each = takes.least; each <= std::min(takes.most, std::max(takes.least, kMostEach)); ++each) {
      Compared& one = all.emplace_back();
      one.name = offered->name;
      one.each = each;
      try {
        simulate_one(*made, command, times, one);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::config) throw;
        one.refusal = error.message();
      }
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Compared& one, const Compared& two) {
    return std::tuple(!one.refusal.empty(), one.length, one.peak) <
           std::tuple(!two.refusal.empty(), two.length, two.peak);
  });
  return all;
}

std::string compared_time(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

using Cells = std::vector<std::string>;

void print_cells(const std::vector<Cells>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Cells& row : rows)
    for (size_t at = 0; at < row.size(); ++at) widths[at] = std::max(widths[at], row[at].size());
  for (const Cells& row : rows) {
    std::string line;
    for (size_t at = 0; at < row.size(); ++at) {
      const std::string blanks(widths[at] - row[at].size(), ' ');
      line += (at == 0 ? "" : "  ") + (at == 0 ? row[at] + blanks : blanks + row[at]);
    }
    std::cout << line << "\n";
  }
}

void print_compared(const ScheduleCommand& command, const GivenTimes& times,
                    const std::vector<Compared>& all) {
  const schedule::Costs costs = costs_of_rank(times, command.ranks);
  std::cout << command.ranks << " ranks, " << command.microbatches
            << " microbatches; times of all layers of a rank"
            << (command.times_from.empty() ? "" : " (mean, in ms, of " + command.times_from + ")") << ": F "
            << compared_time(costs.forward) << ", I " << compared_time(costs.backward_input) << ", W "
            << compared_time(costs.backward_weight) << "; a transfer " << compared_time(costs.transfer)
            << "\n";
  std::vector<Cells> rows = {{"schedule", "stages", "length", "idle", "peak", "transfers"}};
  if (command.memory > 0) rows[0].push_back("peak memory");
  for (const Compared& one : all) {
    if (!one.refusal.empty()) continue;
    char idle[16];
    std::snprintf(idle, sizeof idle, "%.1f %%", 100 * one.idle);
    rows.push_back({one.name, std::to_string(one.each * command.ranks), compared_time(one.length), idle,
                    compared_time(one.peak), std::to_string(one.transfers)});
    if (command.memory > 0) rows.back().push_back(bytes_text(one.peak * double(command.memory)));
  }
  print_cells(rows);
  for (const Compared& one : all)
    if (!one.refusal.empty())
      std::cout << one.name << " (" << one.each * command.ranks << " stages): " << one.refusal << "\n";
  std::cout << "peak: maximum number of live microbatches on a rank, each on all of its layers\n";
}

void print_compared_json(const ScheduleCommand& command, const GivenTimes& times,
                         const std::vector<Compared>& all) {
  const schedule::Costs costs = costs_of_rank(times, command.ranks);
  Json rows = Json::array(), refused = Json::array();
  for (const Compared& one : all) {
    const int stages = one.each * command.ranks;
    if (!one.refusal.empty()) {
      refused.push_back({{"schedule", one.name}, {"stages", stages}, {"why", one.refusal}});
      continue;
    }
    rows.push_back({{"schedule", one.name},
                    {"stages", stages},
                    {"length", one.length},
                    {"idle", one.idle},
                    {"peak", one.peak},
                    {"transfers", one.transfers}});
    if (command.memory > 0) rows.back()["peak_memory"] = one.peak * double(command.memory);
  }
  const Json out = {{"ranks", command.ranks},
                    {"microbatches", command.microbatches},
                    {"times",
                     {{"forward", costs.forward},
                      {"backward_input", costs.backward_input},
                      {"backward_weight", costs.backward_weight},
                      {"transfer", costs.transfer}}},
                    {"schedules", std::move(rows)},
                    {"refused", std::move(refused)}};
  std::cout << out.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
}

void print_pictures(const ScheduleCommand& command, const GivenTimes& times, std::vector<Compared> all) {
  std::vector<schedule::Drawing> drawings;
  for (Compared& one : all)
    if (one.refusal.empty()) drawings.push_back(std::move(one.drawing));
  std::cout << schedule::to_sheet(drawings, costs_of_rank(times, command.ranks));
}

}  // namespace

Measured measured_of(const ScheduleCommand& command, const GivenTimes& times, int stages) {
  Measured measured;
  measured.stages = costs_of_stages(times, stages);
  if (command.limit) measured.limit = *command.limit;
  return measured;
}

ScheduleTable plan_of(const IPipelineSchedule& schedule, const ScheduleCommand& command,
                      const GivenTimes& times, int stages) {
  if (const auto* timed = dynamic_cast<const ITimedSchedule*>(&schedule))
    return timed->plan_for(command.ranks, stages, command.microbatches, measured_of(command, times, stages));
  return schedule.plan(command.ranks, stages, command.microbatches);
}

int compare_schedules(const ScheduleCommand& command, PluginRegistry& plugins) {
  const GivenTimes times = times_of(command);
  const std::vector<Compared> all = compared_all(command, times, plugins);
  if (command.format == ScheduleCommand::Format::json)
    print_compared_json(command, times, all);
  else if (command.format == ScheduleCommand::Format::svg)
    print_pictures(command, times, all);
  else
    print_compared(command, times, all);
  return 0;
}

namespace {

using schedule::Costs;

constexpr const char* kTimesFrom = "--times-from";

Error no_trace(const std::string& file, const std::string& why) {
  return Error(ErrorCode::input, kTimesFrom, file + " " + why,
               "use the file of heddle train --trace from a run with pp_size above 1");
}

// Splits the time of a whole backward into halves; a split backward has no whole time.
Costs completed(Costs costs) {
  if (costs.backward_input + costs.backward_weight == 0)
    costs.backward_input = costs.backward_weight = costs.backward / 2;
  costs.backward = costs.backward_input + costs.backward_weight;
  return costs;
}

std::vector<Costs> read_trace(const std::string& file) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(file, failed)) throw no_trace(file, "is not a regular file");
  std::ifstream in(file);
  if (!in) throw no_trace(file, "cannot be read");
  const auto json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  std::vector<Costs> stages;
  try {
    for (const auto& one : json.at("otherData").at("steps").back().at("stages_ms"))
      stages.push_back(completed({one.at("forward"), one.at("backward"), one.at("backward_input"),
                                  one.at("backward_weight"), one.at("transfer")}));
  } catch (const nlohmann::json::exception&) {
    throw no_trace(file, "contains no measured times of pipeline stages");
  }
  if (stages.empty()) throw no_trace(file, "contains no measured times of pipeline stages");
  return stages;
}

void add_part(Costs& to, const Costs& costs, double part) {
  to.forward += part * costs.forward;
  to.backward += part * costs.backward;
  to.backward_input += part * costs.backward_input;
  to.backward_weight += part * costs.backward_weight;
}

// Each stage but the last has a transfer to the next stage.
double mean_transfer(const GivenTimes& times) {
  if (!times.measured) return times.stretches.front().transfer;
  double sum = 0;
  for (const Costs& one : times.stretches) sum += one.transfer;
  return sum / static_cast<double>(std::max<size_t>(times.stretches.size() - 1, 1));
}

}  // namespace

GivenTimes times_of(const ScheduleCommand& command) {
  if (!command.times_from.empty()) return {read_trace(command.times_from), true};
  const std::vector<double> times = command.times.empty() ? std::vector<double>{1, 1, 1, 0} : command.times;
  Costs whole = {times[0], times[1] + times[2], times[1], times[2], times[3]};
  for (double* time : {&whole.forward, &whole.backward, &whole.backward_input, &whole.backward_weight})
    *time *= command.ranks;
  return {{whole}, false};
}

std::vector<Costs> costs_of_stages(const GivenTimes& times, int stages) {
  const auto count = static_cast<double>(times.stretches.size());
  std::vector<Costs> out;
  for (int stage = 0; stage < stages; ++stage) {
    Costs costs{0, 0, 0, 0, mean_transfer(times)};
    const double begin = count * stage / stages, end = count * (stage + 1) / stages;
    for (double at = begin; at < end - 1e-9;) {
      const double next = std::min(end, std::floor(at + 1e-9) + 1);
      add_part(costs, times.stretches[static_cast<size_t>(at + 1e-9)], next - at);
      at = next;
    }
    out.push_back(costs);
  }
  return out;
}

Costs costs_of_rank(const GivenTimes& times, int ranks) {
  Costs sum{0, 0, 0, 0, mean_transfer(times)};
  for (const Costs& one : times.stretches) add_part(sum, one, 1.0 / ranks);
  return sum;
}

}  // namespace heddle::cli
