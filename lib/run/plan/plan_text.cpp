// Prints a plan as a table, as JSON, and one layout in detail.
#include "lib/run/plan/plan_text.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <vector>

#include "heddle/base/text.h"

namespace heddle {
namespace {

constexpr size_t kMostTooLarge = 3, kMostRefused = 3;

template <class... Values>
std::string formatted(const char* format, Values... values) {
  char text[160];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

std::string time_text(double seconds) {
  return seconds < 1 ? formatted("%.3g ms", seconds * 1e3) : formatted("%.3g s", seconds);
}

// Returns the part of a step in which the layout loses most time against the best one.
std::string loss_text(const StepTime& time, const StepTime& best) {
  const auto fastest = best.parts();
  std::pair<std::string, double> most;
  for (const auto& [name, seconds] : time.parts()) {
    const auto found = std::find_if(fastest.begin(), fastest.end(),
                                    [&, part = name](const auto& other) { return other.first == part; });
    const double more = seconds - (found == fastest.end() ? 0 : found->second);
    if (more > most.second) most = {name, more};
  }
  return most.first.empty() ? "" : "+" + time_text(most.second) + " " + most.first;
}

// Returns the fastest fitting layout that differs from this one in exactly one field.
const PlannedLayout* neighbour(const FoundLayouts& found, const Layout& layout, std::string& change) {
  const auto own = layout.fields();
  for (const PlannedLayout& other : found.fitting) {
    const auto fields = other.layout.fields();
    size_t differing = 0, place = 0;
    for (size_t i = 0; i < own.size(); ++i)
      if (fields[i] != own[i]) ++differing, place = i;
    if (differing != 1) continue;
    change = fields[place].first + ": " + fields[place].second;
    return &other;
  }
  return nullptr;
}

std::string share_text(double share) {
  return share > 0 ? formatted("%.1f %%", share * 100) : "-";
}

using Row = std::array<std::string, 8>;

std::string table_of(const std::vector<Row>& rows) {
  std::array<size_t, 8> widths{};
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - row[i].size(), ' ');
      const bool is_text = i == 1 || i >= 6;
      line += (i == 0 ? "" : "  ") + (is_text ? row[i] + gap : gap + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string fields_json(const Layout& layout) {
  std::string out;
  for (const auto& [key, value] : layout.fields())
    out += (out.empty() ? "" : ", ") + text::quoted(key) + ": " + text::quoted(value);
  return "{" + out + "}";
}

std::string stages_json(const Layout& layout) {
  if (layout.stage_layers.empty()) return "";
  std::string out;
  for (const int64_t count : layout.stage_layers) out += (out.empty() ? "" : ", ") + std::to_string(count);
  return ", \"stage_layers\": [" + out + "]";
}

std::string layout_json(const PlannedLayout& one) {
  std::string parts;
  for (const auto& [name, seconds] : one.cost.time.parts())
    parts += (parts.empty() ? "" : ", ") + text::quoted(name) + formatted(": %.6g", seconds);
  return "{\"layout\": " + fields_json(one.layout) + stages_json(one.layout) +
         formatted(
             ", \"peak_bytes\": %.0f, \"step_seconds\": %.6g, \"tokens_per_second\": %.6g, \"mfu\": %.4g",
             one.cost.peak, one.cost.time.seconds, one.tokens_per_second(), one.mfu) +
         ", \"limit\": " + text::quoted(one.cost.time.limit()) + ", \"parts\": {" + parts + "}}";
}

std::string list_json(const std::vector<PlannedLayout>& layouts, size_t most) {
  std::string out;
  for (size_t i = 0; i < std::min(most, layouts.size()); ++i)
    out += (i == 0 ? "" : ", ") + layout_json(layouts[i]);
  return "[" + out + "]";
}

std::string too_large_text(const FoundLayouts& found) {
  std::string out;
  for (size_t i = 0; i < std::min(kMostTooLarge, found.too_large.size()); ++i) {
    const PlannedLayout& one = found.too_large[i];
    std::string change;
    const PlannedLayout* const other = neighbour(found, one.layout, change);
    out += "  " + one.layout.text() + ": " + bytes_text(one.cost.peak) +
           (other == nullptr ? "" : "; with " + change + " it takes " + bytes_text(other->cost.peak)) + "\n";
  }
  return out;
}

// Returns "row 1 on 32 ranks: 99.1 K tokens/s (104 % per rank), on 128 ranks: ..."; "": unknown.
std::string scaling_text(const FoundLayouts& found) {
  std::string out;
  for (const ScaledLayout& scaled : found.scaling) {
    const double per_rank = scaled.tokens_per_second / scaled.world,
                 own = found.fitting.front().tokens_per_second() / found.world;
    out += (out.empty() ? "row 1 on " : ", on ") + std::to_string(scaled.world) +
           (scaled.world == 1 ? " rank: " : " ranks: ") +
           count_text(static_cast<int64_t>(scaled.tokens_per_second)) + " tokens/s (" +
           formatted("%.0f %% per rank)", per_rank / own * 100);
  }
  return out.empty() ? out : out + "\n";
}

// Returns why the table is empty, and what to change.
std::string no_layout_text(const FoundLayouts& found) {
  if (!found.is_complete)
    return "no layout that was tried fits, and the time was too short to try all of them. Set --seconds to a "
           "longer time\n";
  std::string out = "no layout fits";
  if (found.too_large.empty() && found.bounded > 0)
    out += ": parameters and activations of the smallest, " + found.smallest.text() + ", take " +
           bytes_text(found.smallest_bytes);
  return out + ". Use more ranks, a device with more memory, or a smaller model\n";
}

std::string scaling_json(const FoundLayouts& found) {
  std::string out;
  for (const ScaledLayout& scaled : found.scaling)
    out += (out.empty() ? "" : ", ") + formatted("{\"world_size\": %d, \"tokens_per_second\": %.6g}",
                                                 scaled.world, scaled.tokens_per_second);
  return "[" + out + "]";
}

}  // namespace

std::string to_text(const FoundLayouts& found, size_t top) {
  std::string out = std::to_string(found.world) + " x " + found.device + ", " +
                    std::to_string(found.global_batch) + " samples of " + std::to_string(found.row_length) +
                    " tokens per step";
  if (found.memory > 0) out += ", memory for tensors: " + bytes_text(found.memory) + " per device";
  out += "\n";
  std::vector<Row> rows = {
      {"", "layout", "memory", "step", "tokens/s", "MFU", "limit", "slower than row 1 by"}};
  for (size_t i = 0; i < std::min(top, found.fitting.size()); ++i) {
    const PlannedLayout& one = found.fitting[i];
    rows.push_back({std::to_string(i + 1), one.layout.text(), bytes_text(one.cost.peak),
                    time_text(one.cost.time.seconds),
                    count_text(static_cast<int64_t>(one.tokens_per_second())), share_text(one.mfu),
                    one.cost.time.limit(),
                    i == 0 ? "" : loss_text(one.cost.time, found.fitting[0].cost.time)});
  }
  out += found.fitting.empty() ? no_layout_text(found) : table_of(rows);
  out += scaling_text(found);
  if (!found.too_large.empty()) out += "too large:\n" + too_large_text(found);
  out += std::to_string(found.layouts) + " layouts: " + std::to_string(found.fitting.size()) + " fit, " +
         std::to_string(found.too_large.size()) + " take too much memory, " + std::to_string(found.bounded) +
         " exceed it with parameters and activations alone, ";
  int64_t refused = 0;
  for (const auto& [reason, count] : found.refused) refused += count;
  const auto tried = static_cast<int64_t>(found.fitting.size() + found.too_large.size());
  out += std::to_string(refused) + " are refused, " +
         std::to_string(found.layouts - tried - found.bounded - refused) + " are estimated to be slower\n";
  size_t shown = 0;
  for (const auto& [reason, count] : found.refused)
    if (shown++ < kMostRefused) out += "  refused " + std::to_string(count) + ": " + reason + "\n";
  return out;
}

std::string to_json(const FoundLayouts& found, size_t top) {
  std::string refused;
  for (const auto& [reason, count] : found.refused)
    refused += (refused.empty() ? "" : ", ") + text::quoted(reason) + ": " + std::to_string(count);
  return "{\"device\": " + text::quoted(found.device) + ", \"world_size\": " + std::to_string(found.world) +
         ", \"row_length\": " + std::to_string(found.row_length) +
         ", \"global_batch_size\": " + std::to_string(found.global_batch) +
         ", \"layouts\": " + list_json(found.fitting, top) + ", \"scaling\": " + scaling_json(found) +
         ", \"too_large\": " + list_json(found.too_large, top) + ", \"refused\": {" + refused + "}}";
}

std::string explained(const Layout& layout, const LayoutDetails& details) {
  const StepCost& cost = details.cost;
  std::string out = layout.text() + "\n";
  out += "  step: " + time_text(cost.time.seconds) + ", limited by " + cost.time.limit() + "\n";
  for (const auto& [name, seconds] : cost.time.parts())
    out += formatted("  %6.1f %%  ", seconds / cost.time.seconds * 100) + name + ", " + time_text(seconds) +
           "\n";
  out += "  memory: at most " + bytes_text(cost.peak) +
         (cost.stages == 1 ? "" : " on stage " + std::to_string(cost.stage)) + "\n";
  for (const RankTimeline& timeline : cost.timelines) {
    if (timeline.rank != cost.stage) continue;
    for (const auto& [kind, bytes] : timeline.peak_memory)
      out += formatted("  %6.1f %%  ", bytes / cost.peak * 100) + kind + ", " + bytes_text(bytes) +
             (kind == "parameters and optimizer" && details.optimizer > 0
                  ? ", of which the optimizer " + bytes_text(details.optimizer)
                  : "") +
             "\n";
  }
  for (const GroupTraffic& traffic : cost.traffic)
    if (traffic.ranks > 1)
      out += "  " + traffic.group + " (" + std::to_string(traffic.ranks) +
             " ranks): " + std::to_string(traffic.calls) + " calls of " + bytes_text(traffic.bytes) +
             " recorded\n";
  return out;
}

std::string title_of(const FoundLayouts& found, const Layout& layout) {
  return layout.text() + " on " + std::to_string(found.world) + " x " + found.device;
}

std::string recipe_text(const FoundLayouts& found, const PlannedLayout& one, const Node& recipe) {
  const double seconds = one.cost.time.seconds;
  const std::string plan = "{device: " + text::quoted(found.device) +
                           ", world_size: " + std::to_string(found.world) +
                           formatted(", step_seconds: %.6g, peak_bytes: %.0f}", seconds, one.cost.peak);
  return "# " + title_of(found, one.layout) + ", as heddle plan predicts: " + time_text(seconds) +
         " per step, " + count_text(static_cast<int64_t>(one.tokens_per_second())) +
         " tokens per second, at most " + bytes_text(one.cost.peak) + " of memory per rank\n" +
         config::to_yaml(config::with_override(recipe, "plan", plan));
}

}  // namespace heddle
