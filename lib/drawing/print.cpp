// Schedules as aligned text and as JSON.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heddle/schedule/schedule.h"
#include "lib/drawing/drawing.h"

namespace heddle::schedule {
namespace {

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}

std::string count(size_t number, const std::string& one, const std::string& many) {
  return std::to_string(number) + " " + (number == 1 ? one : many);
}

}  // namespace

std::string sizes_text(const Drawing& drawing) {
  return count(drawing.table.size(), "rank", "ranks") + ", " +
         count(drawing.rank_of_stage.size(), "stage", "stages") + ", " +
         count(drawing.microbatches, "microbatch", "microbatches");
}

std::string idle_text(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "idle %.1f %%", 100 * share);
  return text;
}

std::string peak_text(int peak, size_t stages, size_t ranks) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", double(peak) * double(ranks) / double(stages));
  return text;
}

std::string to_table(const Drawing& drawing) {
  const Simulation run = simulate(drawing.table, drawing.rank_of_stage);
  const auto cells = table_cells(drawing.table, drawing.rank_of_stage);
  size_t columns = 0, width = 0;
  for (const auto& row : cells) {
    columns = std::max(columns, row.size());
    for (const std::string& cell : row) width = std::max(width, cell.size());
  }
  const size_t label = std::to_string(cells.size() - 1).size() + 5;
  std::string text = drawing.name + ": " + sizes_text(drawing) + "\n";
  for (size_t rank = 0; rank < cells.size(); ++rank) {
    text += padded("rank " + std::to_string(rank), label);
    for (size_t at = 0; at < columns; ++at)
      text += " " + padded(at >= cells[rank].size()  ? ""
                           : cells[rank][at].empty() ? "."
                                                     : cells[rank][at],
                           width);
    text += "  " + idle_text(run.idle[rank]) + ", peak " +
            peak_text(run.peak[rank], drawing.rank_of_stage.size(), drawing.table.size()) + "\n";
  }
  return text +
         "idle: the share of time without work, where a forward takes 1 and a backward 2 (I 1, W 1); "
         "peak: the most microbatches alive at once, each on all layers of the rank\n";
}

std::string to_json(const Drawing& drawing) {
  using Json = nlohmann::ordered_json;
  const Costs costs;
  const Simulation run = simulate(drawing.table, drawing.rank_of_stage, costs);
  Json rows = Json::array(), times = Json::array();
  for (size_t rank = 0; rank < drawing.table.size(); ++rank) {
    Json row = Json::array(), spans = Json::array();
    for (const Action& action : drawing.table[rank]) row.push_back(name_of(action));
    for (const TimeSpan& time : run.times[rank]) spans.push_back({time.start, time.end});
    rows.push_back(std::move(row));
    times.push_back(std::move(spans));
  }
  const Json out = {{"schedule", drawing.name},
                    {"ranks", drawing.table.size()},
                    {"stages", drawing.rank_of_stage.size()},
                    {"microbatches", drawing.microbatches},
                    {"rank_of_stage", drawing.rank_of_stage},
                    {"rows", std::move(rows)},
                    {"simulation",
                     {{"costs",
                       {{"forward", costs.forward},
                        {"backward", costs.backward},
                        {"backward_input", costs.backward_input},
                        {"backward_weight", costs.backward_weight},
                        {"transfer", costs.transfer}}},
                      {"length", run.length},
                      {"idle", run.idle},
                      {"peak", run.peak},
                      {"times", std::move(times)}}}};
  return out.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace heddle::schedule
