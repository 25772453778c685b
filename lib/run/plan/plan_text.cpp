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
  return most.first.empty() ? "" : "+" + seconds_text(most.second) + " " + most.first;
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

std::string percent_text(double percent) {
  return percent > 0 ? formatted("%.1f %%", percent) : "-";
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

// Returns a value of --fix as JSON: a number, true, false, or a string.
std::string value_json(const std::string& value) {
  const bool is_number = !value.empty() && value.find_first_not_of("0123456789") == value.npos;
  return is_number || value == "true" || value == "false" ? value : text::quoted(value);
}

std::string fields_json(const Layout& layout) {
  std::string out;
  for (const auto& [key, value] : layout.fields())
    out += (out.empty() ? "" : ", ") + text::quoted(key) + ": " + value_json(value);
  return "{" + out + "}";
}

std::string stages_json(const Layout& layout) {
  if (layout.stage_layers.empty()) return "";
  std::string out;
  for (const int64_t count : layout.stage_layers) out += (out.empty() ? "" : ", ") + std::to_string(count);
  return ", \"stage_layers\": [" + out + "]";
}

// Returns the fields of a layout without braces.
std::string layout_json(const PlannedLayout& one) {
  const Node& distributed = *one.recipe.find("distributed");
  return "\"distributed\": " + config::to_json(distributed) + ", \"local_batch_size\": " +
         config::to_json(*one.recipe.find("step_scheduler")->find("local_batch_size")) +
         ", \"activation_checkpointing\": " + config::to_json(*distributed.find("activation_checkpointing")) +
         ", \"layout\": " + fields_json(one.layout) + stages_json(one.layout) +
         formatted(", \"peak_bytes\": %.0f, ", one.cost.peak) + time_json(one.cost);
}

// Returns "local_batch_size: 1", the one change with which the layout is one that fits; "": none is known.
std::string change_text(const FoundLayouts& found, const PlannedLayout& one, std::string* with = nullptr) {
  std::string change;
  const PlannedLayout* const other = neighbour(found, one.layout, change);
  if (other != nullptr && with != nullptr) *with = bytes_text(other->cost.peak);
  return change;
}

std::string too_large_text(const FoundLayouts& found) {
  std::string out;
  for (size_t i = 0; i < std::min(kMostTooLarge, found.too_large.size()); ++i) {
    const PlannedLayout& one = found.too_large[i];
    std::string bytes;
    const std::string change = change_text(found, one, &bytes);
    out += "  " + one.layout.text() + ": " + bytes_text(one.cost.peak) +
           (change.empty() ? "" : "; with " + change + " it takes " + bytes) + "\n";
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

std::string scaling_json(const FoundLayouts& found) {
  std::string out;
  for (const ScaledLayout& scaled : found.scaling)
    out += (out.empty() ? "" : ", ") + formatted("{\"world_size\": %d, \"tokens_per_second\": %.6g}",
                                                 scaled.world, scaled.tokens_per_second);
  return "[" + out + "]";
}

int64_t refused_of(const FoundLayouts& found) {
  int64_t out = 0;
  for (const auto& [reason, count] : found.refused) out += count;
  return out;
}

int64_t untried_of(const FoundLayouts& found) {
  const auto tried = static_cast<int64_t>(found.fitting.size() + found.too_large.size());
  return found.layouts - tried - found.bounded - refused_of(found);
}

// Returns "67.06 GiB per device", or "67.06 GiB per H100, 40.23 GiB per A100"; "": unknown.
std::string memory_text(const FoundLayouts& found) {
  std::string out;
  for (size_t i = 0; i < found.memory.size(); ++i) {
    if (found.memory[i] <= 0) return "";
    out += (i == 0 ? "" : ", ") + bytes_text(found.memory[i]) + " per " +
           (found.memory.size() == 1 ? "device" : found.devices[i]);
  }
  return out;
}

// Returns what is known of the whole search as a JSON object.
std::string search_json(const FoundLayouts& found) {
  std::string refused, memory;
  for (const auto& [reason, count] : found.refused)
    refused += (refused.empty() ? "" : ", ") + text::quoted(reason) + ": " + std::to_string(count);
  for (size_t i = 0; i < found.memory.size(); ++i)
    memory += (i == 0 ? "" : ", ") + (found.memory[i] > 0 ? formatted("%.0f", found.memory[i]) : "null");
  return "{\"device\": " + text::quoted(found.device()) + ", \"world_size\": " + std::to_string(found.world) +
         ", \"row_length\": " + std::to_string(found.row_length) +
         ", \"global_batch_size\": " + std::to_string(found.global_batch) + ", \"memory_bytes\": [" + memory +
         "], \"layouts\": " + std::to_string(found.layouts) +
         ", \"fitting\": " + std::to_string(found.fitting.size()) +
         ", \"too_large\": " + std::to_string(found.too_large.size() + static_cast<size_t>(found.bounded)) +
         ", \"untried\": " + std::to_string(untried_of(found)) + ", \"scaling\": " + scaling_json(found) +
         ", \"refused\": {" + refused + "}}";
}

// Returns the memory of a layout by kind, and its collectives, as fields of a JSON object.
std::string details_json(const LayoutDetails& details) {
  std::string kinds, groups;
  for (const auto& [kind, bytes] : details.memory())
    kinds += (kinds.empty() ? "" : ", ") + text::quoted(kind) + formatted(": %.0f", bytes);
  for (const GroupTraffic& traffic : details.cost.traffic)
    groups += (groups.empty() ? "" : ", ") + text::quoted(traffic.group) +
              formatted(": {\"ranks\": %d, \"calls\": %lld, \"bytes\": %.0f}", traffic.ranks,
                        static_cast<long long>(traffic.calls), traffic.bytes);
  return formatted("\"optimizer_bytes\": %.0f, \"memory\": {", details.optimizer) + kinds +
         "}, \"recorded_microbatches\": " + std::to_string(details.cost.recorded) + ", \"collectives\": {" +
         groups + "}";
}

}  // namespace

Error no_fitting_layout(const FoundLayouts& found) {
  const auto error = [](const std::string& what, const std::string& hint) {
    return Error(ErrorCode::usage, "heddle plan", what, hint);
  };
  if (!found.is_complete)
    return error("no layout that was tried fits, and the time was too short to try all of them",
                 "set --seconds to a longer time");
  if (found.too_large.empty() && refused_of(found) > found.bounded)
    return error("every layout is refused: " + found.refused.begin()->first,
                 "correct the recipe, or remove --fix");
  const std::string smallest =
      !found.too_large.empty() ? ": the smallest, " + found.too_large[0].layout.text() + ", takes " +
                                     bytes_text(found.too_large[0].cost.peak)
      : found.bounded > 0 ? ": parameters and activations of the smallest, " + found.smallest.text() +
                                ", take " + bytes_text(found.smallest_bytes)
                          : "";
  return error("no layout fits" + smallest, "use more ranks, a device with more memory, or a smaller model");
}

std::string to_text(const FoundLayouts& found, size_t top) {
  std::string out = std::to_string(found.world) + " x " + found.device() + ", " +
                    std::to_string(found.global_batch) + " samples of " + std::to_string(found.row_length) +
                    " tokens per step";
  if (const std::string memory = memory_text(found); !memory.empty())
    out += ", memory for tensors: " + memory;
  out += "\n";
  std::vector<Row> rows = {
      {"", "layout", "memory", "step", "tokens/s", "MFU", "limit", "slower than row 1 by"}};
  for (size_t i = 0; i < std::min(top, found.fitting.size()); ++i) {
    const PlannedLayout& one = found.fitting[i];
    rows.push_back({std::to_string(i + 1), one.layout.text(), bytes_text(one.cost.peak),
                    seconds_text(one.cost.time.seconds),
                    count_text(static_cast<int64_t>(one.tokens_per_second())), percent_text(one.cost.mfu),
                    one.cost.time.limit(),
                    i == 0 ? "" : loss_text(one.cost.time, found.fitting[0].cost.time)});
  }
  if (!found.fitting.empty()) out += table_of(rows);
  out += scaling_text(found);
  if (!found.too_large.empty()) out += "too large:\n" + too_large_text(found);
  out += std::to_string(found.layouts) + " layouts: " + std::to_string(found.fitting.size()) + " fit, " +
         std::to_string(found.too_large.size()) + " take too much memory, " + std::to_string(found.bounded) +
         " exceed it with parameters and activations alone, ";
  out += std::to_string(refused_of(found)) + " are refused, " + std::to_string(untried_of(found)) +
         (found.fitting.empty() ? " were not tried\n" : " are estimated to be slower\n");
  size_t shown = 0;
  for (const auto& [reason, count] : found.refused)
    if (shown++ < kMostRefused) out += "  refused " + std::to_string(count) + ": " + reason + "\n";
  return out;
}

std::string to_json(const FoundLayouts& found, size_t top, const Explained* explained) {
  std::string out;
  const auto add = [&](const std::string& rank, const PlannedLayout& one, const std::string& more) {
    out += "{\"rank\": " + rank + ", \"fits\": " + (one.fits ? "true, " : "false, ") + layout_json(one) +
           more + (out.empty() ? ", \"search\": " + search_json(found) : "") + "}\n";
  };
  for (size_t i = 0; i < found.fitting.size(); ++i) {
    const bool is_explained = explained != nullptr && explained->row == i + 1;
    if (i < top || is_explained)
      add(std::to_string(i + 1), found.fitting[i],
          is_explained ? ", " + details_json(explained->details) : "");
  }
  for (size_t i = 0; i < std::min(top, found.too_large.size()); ++i) {
    const std::string change = change_text(found, found.too_large[i]);
    add("null", found.too_large[i], ", \"change\": " + (change.empty() ? "null" : text::quoted(change)));
  }
  return out;
}

std::string to_text(const FoundLayouts& found, const Explained& explained) {
  const PlannedLayout& planned = found.fitting[explained.row - 1];
  const StepCost& cost = planned.cost;
  std::string out = std::to_string(explained.row) + ". " + planned.layout.text() + "\n";
  out += "  step: " + seconds_text(cost.time.seconds) + ", limited by " + cost.time.limit() + "\n";
  for (const auto& [name, seconds] : cost.time.parts())
    out += formatted("  %6.1f %%  ", seconds / cost.time.seconds * 100) + name + ", " +
           seconds_text(seconds) + "\n";
  out += "  memory: at most " + bytes_text(cost.peak) +
         (cost.stages == 1 ? "" : " on stage " + std::to_string(cost.stage)) + "\n";
  for (const auto& [kind, bytes] : explained.details.memory())
    out += formatted("  %6.1f %%  ", bytes / cost.peak * 100) + kind + ", " + bytes_text(bytes) +
           (kind == "parameters and optimizer" && explained.details.optimizer > 0
                ? ", of which the optimizer " + bytes_text(explained.details.optimizer)
                : "") +
           "\n";
  const int64_t microbatches = cost.passes * cost.microbatches_of_pass;
  for (const GroupTraffic& traffic : explained.details.cost.traffic)
    if (traffic.ranks > 1)
      out += "  " + traffic.group + " (" + std::to_string(traffic.ranks) +
             " ranks): " + std::to_string(traffic.calls) + " calls of " + bytes_text(traffic.bytes) +
             (explained.details.cost.recorded == microbatches
                  ? ""
                  : " with " + std::to_string(explained.details.cost.recorded) + " of " +
                        std::to_string(microbatches) + " microbatches") +
             "\n";
  return out;
}

std::string title_of(const FoundLayouts& found, const Layout& layout) {
  return layout.text() + " on " + std::to_string(found.world) + " x " + found.device();
}

std::string recipe_text(const FoundLayouts& found, const PlannedLayout& one) {
  const double seconds = one.cost.time.seconds;
  const std::string plan = "{device: " + text::quoted(found.device()) +
                           ", world_size: " + std::to_string(found.world) +
                           formatted(", step_seconds: %.6g, peak_bytes: %.0f}", seconds, one.cost.peak);
  return "# " + title_of(found, one.layout) + ", as heddle plan predicts: " + seconds_text(seconds) +
         " per step, " + count_text(static_cast<int64_t>(one.tokens_per_second())) +
         " tokens per second, at most " + bytes_text(one.cost.peak) + " of memory per rank\n" +
         config::to_yaml(config::with_override(one.recipe, "plan", plan));
}

}  // namespace heddle
