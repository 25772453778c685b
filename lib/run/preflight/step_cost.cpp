// A dry step of each stage, and sums over what it recorded.
#include "lib/run/preflight/step_cost.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>

#include "heddle/base/text.h"
#include "heddle/engine/engine.h"
#include "lib/run/metrics/mfu.h"
#include "lib/run/preflight/rank_size.h"

namespace heddle {
namespace {

struct Rates {
  double products = 0, other = 0, bandwidth = 0;  // a second; 0: not known
};

std::vector<Batch> batches_of(const Recipe& recipe, int64_t length, int64_t count, bool draws) {
  const auto options = at::TensorOptions(at::kLong).device(at::kMeta);
  Batch batch;
  batch.tokens = at::empty({recipe.steps.local_batch_size, length}, options);
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
    const double rate = call.product ? rates.products : rates.other;
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
  Estimate(const Setup& setup, const PreparedModel& model, const Recipe& recipe, PluginRegistry& plugins,
           int64_t row_length)
      : setup_(setup), model_(model), recipe_(recipe), plugins_(plugins), row_length_(row_length) {}

  StepCost of_stage(int stage, const Gpu* gpu) {
    const auto optimizer = recipe_.optimizer.make();
    WholeModel whole;
    engine::DryHost host = first_rank_of_stage(stage, setup_, model_, whole);
    host.step = step_config(recipe_);
    host.optimizer = optimizer.get();
    host.batch_rows = recipe_.steps.local_batch_size;
    host.kernels = gpu != nullptr;
    host.batches = [&](const DeviceMesh& mesh) {
      const int64_t rows = recipe_.steps.local_batch_size * mesh.size("dp");
      batches_ = batches_of(recipe_, row_length_,
                            std::max<int64_t>(1, recipe_.steps.global_batch_size / rows), whole.draws);
      return std::span<const Batch>(batches_);
    };
    return sum(engine::dry_step(setup_, plugins_, host), stage, gpu);
  }

 private:
  StepCost sum(const engine::DryStep& step, int stage, const Gpu* gpu) const {
    StepCost out;
    out.stage = stage;
    out.stages = setup_.sizes.pp;
    out.row_length = row_length_;
    out.passes = static_cast<int64_t>(batches_.size());
    out.peak = static_cast<double>(step.computed.peak(step.begin));
    out.before = static_cast<double>(step.computed.alive(step.begin));
    for (const OperatorCall& call : step.computed.calls)
      if (call.product && call.moment >= step.begin) out.products += call.cost.operations;
    const OperatorCost total = step.computed.total(step.begin);
    out.moved = total.read + total.written;
    out.traffic = traffic_of(step.step);
    if (gpu == nullptr) return out;
    const at::ScalarType dtype = product_dtype(setup_, model_);
    const bool half = dtype == at::kBFloat16 || dtype == at::kHalf;
    out.device_memory = gpu->memory * 1e9;
    out.seconds = seconds_of(step, {gpu->peak(half), gpu->peak(false), gpu->bandwidth * 1e12});
    return out;
  }

  const Setup& setup_;
  const PreparedModel& model_;
  const Recipe& recipe_;
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

}  // namespace

StepCost step_cost(const Setup& setup, const PreparedModel& model, const Recipe& recipe,
                   const std::optional<RunPipeline>& pipeline, PluginRegistry& plugins, int64_t row_length,
                   const std::string& device) {
  const Gpu* const gpu = named_gpu(device);
  Estimate estimate(setup, model, recipe, plugins, row_length);
  StepCost most;
  for (int stage = 0; stage < setup.sizes.pp; ++stage) {
    StepCost cost = estimate.of_stage(stage, gpu);
    if (cost.peak >= most.peak) most = std::move(cost);
  }
  most.device = gpu == nullptr ? device : gpu->name;
  if (pipeline) most.microbatches_of_pass = pipeline->microbatches;
  return most;
}

}  // namespace heddle
