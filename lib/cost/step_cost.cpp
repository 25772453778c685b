// A dry step of each stage, sums over what it recorded, and their text.
#include "lib/cost/step_cost.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "heddle/base/text.h"
#include "lib/cost/gpus.h"

namespace heddle {
namespace {

struct Rates {
  double products = 0, other = 0, bandwidth = 0;  // a second; 0: not known
};

std::vector<Batch> meta_batches(int64_t rows, int64_t length, int64_t count, bool draws) {
  const auto options = at::TensorOptions(at::kLong).device(at::kMeta);
  Batch batch;
  batch.tokens = at::empty({rows, length}, options);
  batch.labels = at::empty_like(batch.tokens);
  if (draws) batch.draws = at::empty_like(batch.tokens);
  batch.step = std::numeric_limits<int64_t>::max();  // what begins with a later step counts
  return std::vector<Batch>(static_cast<size_t>(count), batch);
}

double seconds_of(const engine::DryStep& step, const Rates& rates) {
  if (rates.products == 0 || rates.bandwidth == 0) return 0;
  double seconds = 0;
  for (const OperatorCall& call : step.computed.calls) {
    if (call.moment < step.begin) continue;
    const double moving = (call.cost.read + call.cost.written) / rates.bandwidth;
    const double rate = call.is_product ? rates.products : rates.other;
    seconds += std::max(moving, rate > 0 ? call.cost.operations / rate : 0);
  }
  return seconds;
}

std::vector<GroupTraffic> traffic_of(const DryLog& log) {
  std::vector<GroupTraffic> out;
  for (const DryEntry& entry : log) {
    const auto of = [&](const GroupTraffic& one) { return one.group == entry.group; };
    auto found = std::find_if(out.begin(), out.end(), of);
    if (found == out.end()) found = out.insert(out.end(), {entry.group, entry.group_size});
    ++found->calls;
    found->bytes += static_cast<double>(entry.bytes);
  }
  return out;
}

class Estimate {
 public:
  Estimate(const StepPlan& plan, PluginRegistry& plugins, int64_t row_length)
      : plan_(plan), plugins_(plugins), row_length_(row_length) {}

  StepCost of_stage(int stage, const Gpu* gpu) {
    const auto optimizer = plan_.make_optimizer();
    WholeModel whole;
    engine::DryHost host = first_rank_of_stage(stage, plan_, whole);
    host.step = plan_.step;
    host.optimizer = optimizer.get();
    host.batch_rows = plan_.local_batch_size;
    host.kernels = gpu != nullptr;
    host.batches = [&](const DeviceMesh& mesh) {
      const int64_t rows = plan_.local_batch_size * mesh.size("dp");
      batches_ = meta_batches(plan_.local_batch_size, row_length_,
                              std::max<int64_t>(1, plan_.global_batch_size / rows), whole.draws);
      return std::span<const Batch>(batches_);
    };
    return sum(engine::dry_step(plan_.setup, plugins_, host), stage, gpu);
  }

 private:
  StepCost sum(const engine::DryStep& step, int stage, const Gpu* gpu) const {
    StepCost out;
    out.stage = stage;
    out.stages = plan_.setup.sizes.pp;
    out.row_length = row_length_;
    out.passes = static_cast<int64_t>(batches_.size());
    out.peak = static_cast<double>(step.computed.peak(step.begin));
    out.before = static_cast<double>(step.computed.alive(step.begin));
    for (const OperatorCall& call : step.computed.calls)
      if (call.is_product && call.moment >= step.begin) out.products += call.cost.operations;
    const OperatorCost total = step.computed.total(step.begin);
    out.moved = total.read + total.written;
    out.traffic = traffic_of(step.step);
    if (gpu == nullptr) return out;
    const bool half = plan_.products == at::kBFloat16 || plan_.products == at::kHalf;
    out.device_memory = gpu->memory * 1e9;
    out.seconds = seconds_of(step, {gpu->peak(half), gpu->peak(false), gpu->bandwidth * 1e12});
    return out;
  }

  const StepPlan& plan_;
  PluginRegistry& plugins_;
  int64_t row_length_;
  std::vector<Batch> batches_;
};

const Gpu* named_gpu(const std::string& device) {
  if (device == "cpu") return nullptr;
  const std::vector<std::string> names = gpu_names();
  if (const Gpu* const gpu = gpu_named(device); gpu != nullptr) return gpu;
  throw Error(ErrorCode::usage, "--cost", "'" + device + "' is not a device that heddle has figures of",
              "give one of cpu, " + text::join(names, ", "));
}

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

}  // namespace

StepCost step_cost(const StepPlan& plan, PluginRegistry& plugins, int64_t row_length,
                   const std::string& device) {
  const Gpu* const gpu = named_gpu(device);
  Estimate estimate(plan, plugins, row_length);
  StepCost most;
  for (int stage = 0; stage < plan.setup.sizes.pp; ++stage) {
    StepCost cost = estimate.of_stage(stage, gpu);
    if (cost.peak >= most.peak) most = std::move(cost);
  }
  most.device = gpu == nullptr ? device : gpu->name;
  most.microbatches_of_pass = plan.microbatches_of_pass;
  return most;
}

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
  if (const std::string traffic = traffic_text(cost); !traffic.empty())
    out += "  collectives: " + traffic + "\n";
  if (cost.device_memory > 0 && cost.peak > cost.device_memory) out += "  this does not fit in the device\n";
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
         ", \"least_seconds\": " + seconds + ", \"collectives\": {" + traffic + "}}";
}

}  // namespace heddle
