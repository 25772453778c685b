// A dry mesh on meta tensors runs the strategy.
#include "lib/run/preflight/rank_size.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "heddle/base/text.h"
#include "heddle/mesh/dry.h"
#include "lib/run/model/amounts.h"

namespace heddle {
namespace {

// Above this the world alone would take hundreds of megabytes to lay out.
constexpr int kLargestDryWorld = 1 << 16;

RankSizes sizes_on_ranks(const Plan& plan, const Setup& setup, const PreparedModel& model,
                         const Recipe& recipe) {
  RankSizes out;
  double all = 0;
  for (int stage = 0; stage < setup.sizes.pp; ++stage) {
    Units units = model.make();
    const WholeModel whole = whole_model(units, model.packed());
    DryRank world(stage * stride_of_pp(setup), setup.sizes.world);
    const DeviceMesh mesh = mesh::build(setup.axes, world, "", setup.views, setup.axis_table);
    Stages stages = parallel::build(std::move(units), plan, mesh, /*source=*/{}, /*seed=*/0);
    const auto optimizer = recipe.optimizer.make();
    const auto states = states_of(stages, mesh, step_config(recipe), *optimizer);
    const ModelSize size = size_of(whole, stages, states, recipe.max_norm);
    const RankSizes here{size};
    if (here.bytes() >= out.bytes()) out.most = size;
    all += here.bytes();
  }
  out.average = all / setup.sizes.pp;
  return out;
}

// The machine's, or what the control group of this process may have where that is less; 0: not known.
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

int stride_of_pp(const Setup& setup) {
  int stride = setup.sizes.world;
  for (const Axis& axis : setup.axes) {
    stride /= axis.size;
    if (axis.name == kPipelineAxis) return stride;
  }
  return 0;
}

std::optional<RankSizes> sizes_if_known(const Plan& plan, Setup& setup, const PreparedModel& model,
                                        const Recipe& recipe) {
  if (setup.sizes.world > kLargestDryWorld) return std::nullopt;
  try {
    return sizes_on_ranks(plan, setup, model, recipe);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::plugin_failed && error.code() != ErrorCode::internal) throw;
    setup.warnings.push_back("what a rank holds is not known: " + error.message());
  } catch (const std::exception& error) {
    setup.warnings.push_back(std::string("what a rank holds is not known: ") + error.what());
  }
  return std::nullopt;
}

void check_memory(const RankSizes& sizes, const ModelSection& section, int local_ranks, double memory) {
  if (!section.check_memory) return;
  if (memory == 0) memory = memory_here();
  const double needed = local_ranks == 1 ? sizes.bytes() : sizes.average * local_ranks;
  if (memory == 0 || needed <= memory) return;
  const std::string ranks =
      local_ranks == 1 ? "a rank" : std::to_string(local_ranks) + " ranks on this machine";
  throw Error(
      ErrorCode::config, section.where,
      "parameters, gradients and the optimizer of " + ranks + " take " + bytes_text(needed) +
          ", and the machine has " + bytes_text(memory),
      "split the model over more machines, or train a smaller one or in bfloat16; --model.check_memory "
      "false starts the run all the same");
}

}  // namespace heddle
