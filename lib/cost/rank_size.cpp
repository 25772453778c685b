// Runs the engine in a dry world for each pipeline stage, and measures the sizes on the stage's rank.
#include "lib/cost/rank_size.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "heddle/base/text.h"
#include "heddle/mesh/dry.h"

namespace heddle {
namespace {

// Larger worlds would need hundreds of megabytes for their layout alone.
constexpr int kLargestDryWorld = 1 << 16;

// The run's device may not be on this machine.
RankSizes sizes_on_ranks(const StepPlan& plan, PluginRegistry& plugins) {
  Setup setup = plan.setup;
  setup.backend = "gloo";
  RankSizes out;
  double all = 0;
  for (int stage = 0; stage < setup.sizes.pp; ++stage) {
    WholeModel whole;
    const engine::DryHost host = first_rank_of_stage(stage, plan, whole);
    DryRank world(host.rank, host.world_size);
    engine::Model dry = engine::model(setup, plugins, {world, host.make_units});
    const auto optimizer = plan.make_optimizer();
    const auto states = states_of(dry.stages, dry.mesh, plan.step, *optimizer);
    const ModelSize size = size_of(whole, dry.stages, states, plan.step.max_norm);
    const RankSizes here{size};
    if (here.bytes() >= out.bytes()) out.most = size;
    all += here.bytes();
  }
  out.average = all / setup.sizes.pp;
  return out;
}

// Returns the rank distance of neighbours on the axis pp.
int stride_of_pp(const Setup& setup) {
  int stride = setup.sizes.world;
  for (const Axis& axis : setup.axes) {
    stride /= axis.size;
    if (axis.name == kPipelineAxis) return stride;
  }
  return 0;
}

// Returns the memory of the machine, or the limit of this process's control group if smaller; 0: unknown.
double memory_here() {
  double bytes = 0;
  std::ifstream info("/proc/meminfo");
  for (std::string line; bytes == 0 && std::getline(info, line);)
    if (line.starts_with("MemTotal:")) bytes = 1024 * std::strtod(line.c_str() + 9, nullptr);
  for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    double limit = 0;
    if (std::ifstream(file) >> limit && limit > 0 && (bytes == 0 || limit < bytes)) bytes = limit;
  }
  return bytes;
}

}  // namespace

engine::DryHost first_rank_of_stage(int stage, const StepPlan& plan, WholeModel& whole) {
  engine::DryHost host;
  host.rank = stage * stride_of_pp(plan.setup);
  host.world_size = plan.setup.sizes.world;
  host.make_units = [&](const Setup&) {
    Units units = plan.make_units();
    whole = whole_model(units, plan.packed, plan.of_other_models);
    return units;
  };
  return host;
}

std::optional<RankSizes> sizes_if_known(const StepPlan& plan, PluginRegistry& plugins,
                                        std::vector<std::string>& warnings) {
  if (plan.setup.sizes.world > kLargestDryWorld) return std::nullopt;
  try {
    return sizes_on_ranks(plan, plugins);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::plugin_failed && error.code() != ErrorCode::internal) throw;
    warnings.push_back("the memory per rank is unknown: " + error.message());
  } catch (const std::exception& error) {
    warnings.push_back(std::string("the memory per rank is unknown: ") + error.what());
  }
  return std::nullopt;
}

void check_memory(const RankSizes& sizes, const std::string& where, int local_ranks, double memory) {
  if (memory == 0) memory = memory_here();
  const double needed = local_ranks == 1 ? sizes.bytes() : sizes.average * local_ranks;
  if (memory == 0 || needed <= memory) return;
  const std::string ranks =
      local_ranks == 1 ? "a rank" : std::to_string(local_ranks) + " ranks on this machine";
  throw Error(
      ErrorCode::config, where,
      "parameters, gradients and the optimizer of " + ranks + " take " + bytes_text(needed) +
          ", but the machine has " + bytes_text(memory),
      "use more machines, a smaller model, or model.dtype: bfloat16; --model.check_memory false starts the "
      "run anyway");
}

}  // namespace heddle
