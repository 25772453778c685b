// Spreads measured times of stages over the depth of the model, and redistributes them over other stages.
#include "trainer/cli/schedule/schedule_times.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "heddle/base/error.h"

namespace heddle::cli {
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
