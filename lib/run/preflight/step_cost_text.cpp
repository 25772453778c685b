// The cost of a step for a person and for a script.
#include <algorithm>
#include <cstdio>

#include "heddle/base/text.h"
#include "lib/cost/model_size.h"
#include "lib/run/preflight/step_cost.h"

namespace heddle {
namespace {

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), seconds < 1 ? "%.3g ms" : "%.3g s",
                seconds < 1 ? seconds * 1e3 : seconds);
  return text;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f", value);
  return text;
}

std::string traffic_text(const StepCost& cost) {
  std::string out;
  for (const GroupTraffic& one : cost.traffic) {
    if (one.ranks == 1) continue;
    out += (out.empty() ? "" : "; ") + one.group + " (" + std::to_string(one.ranks) + " ranks) " +
           std::to_string(one.calls) + " calls of " + bytes_text(one.bytes);
  }
  return out;
}

std::string counted(int64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

std::string batch_text(const StepCost& cost) {
  const auto microbatches = [](int64_t count) { return counted(count, "microbatch", "microbatches"); };
  return cost.stages == 1
             ? microbatches(cost.passes)
             : counted(cost.passes, "pass", "passes") + " of " + microbatches(cost.microbatches_of_pass);
}

std::string time_json(const StepCost& cost) {
  if (cost.time.seconds <= 0) return ", \"step_seconds\": null";
  char text[160];
  std::snprintf(text, sizeof(text),
                ", \"step_seconds\": %.6g, \"tokens_per_second\": %.6g, \"limit\": ", cost.time.seconds,
                cost.tokens / cost.time.seconds);
  return text + text::quoted(cost.time.limit());
}

}  // namespace

std::string to_text(const StepCost& cost) {
  const std::string of_stage = cost.stages == 1 ? ""
                                                : " of stage " + std::to_string(cost.stage) + " of " +
                                                      std::to_string(cost.stages) + ", which holds most";
  std::string out = "cost of a step of a rank on " + cost.device + of_stage + ": " + batch_text(cost) +
                    ", rows of " + std::to_string(cost.row_length) + " tokens\n";
  out += "  memory: at most " + bytes_text(cost.peak);
  if (cost.device_memory > 0) out += " of " + bytes_text(cost.device_memory);
  out += ", of which " + bytes_text(cost.before) + " are held before the step\n";
  out += "  computing: " + count_text(static_cast<int64_t>(std::min(cost.products, 9e18))) +
         " operations in products, " + bytes_text(cost.moved) + " read and written";
  if (cost.seconds > 0) out += "; at least " + seconds_text(cost.seconds) + " at the device's peaks";
  out += "\n";
  if (cost.time.seconds > 0)
    out += "  time: " + seconds_text(cost.time.seconds) + " a step, " +
           count_text(static_cast<int64_t>(cost.tokens / cost.time.seconds)) +
           " tokens a second, limited by " + cost.time.limit() + "; `heddle plan` compares layouts\n";
  if (const std::string traffic = traffic_text(cost); !traffic.empty())
    out += "  collectives: " + traffic + "\n";
  if (!cost.fits()) out += "  this does not fit in the device\n";
  return out;
}

std::string to_json(const StepCost& cost) {
  std::string traffic;
  for (const GroupTraffic& one : cost.traffic)
    traffic += (traffic.empty() ? "" : ", ") + text::quoted(one.group) +
               ": {\"ranks\": " + std::to_string(one.ranks) + ", \"calls\": " + std::to_string(one.calls) +
               ", \"bytes\": " + number(one.bytes) + "}";
  char seconds[32] = "null";
  if (cost.seconds > 0) std::snprintf(seconds, sizeof(seconds), "%.6g", cost.seconds);
  return "{\"device\": " + text::quoted(cost.device) +
         ", \"device_memory\": " + (cost.device_memory > 0 ? number(cost.device_memory) : "null") +
         ", \"stage\": " + std::to_string(cost.stage) +
         ", \"row_length\": " + std::to_string(cost.row_length) +
         ", \"passes\": " + std::to_string(cost.passes) +
         ", \"microbatches\": " + std::to_string(cost.passes * cost.microbatches_of_pass) +
         ", \"peak_bytes\": " + number(cost.peak) + ", \"bytes_before\": " + number(cost.before) +
         ", \"product_operations\": " + number(cost.products) + ", \"bytes_moved\": " + number(cost.moved) +
         ", \"least_seconds\": " + seconds + time_json(cost) + ", \"collectives\": {" + traffic + "}}";
}

}  // namespace heddle
