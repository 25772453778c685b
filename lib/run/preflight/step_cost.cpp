// A dry step of each kind of stage, and what was recorded as memory, operations and time.
#include "lib/run/preflight/step_cost.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <utility>

#include "heddle/base/text.h"
#include "heddle/engine/engine.h"
#include "heddle/schedule/simulate.h"
#include "lib/run/metrics/mfu.h"
#include "lib/run/preflight/rank_size.h"

namespace heddle {
namespace {

constexpr const char* kCpu = "cpu";

double least_seconds(const engine::DryStep& step, const MachineFile& machine, bool in_16_bits) {
  const double products = in_16_bits ? machine.peak_16 : machine.peak_32, other = machine.peak_32;
  if (products == 0 || machine.memory_bandwidth == 0 || machine.name == kCpu) return 0;
  double seconds = 0;
  for (const OperatorCall& call : step.computed.calls) {
    if (call.moment < step.begin) continue;
    const double moving = (call.cost.read + call.cost.written) / machine.memory_bandwidth;
    const double rate = call.product ? products : other;
    seconds += std::max(moving, rate > 0 ? call.cost.operations / rate : 0);
  }
  return seconds;
}

std::vector<GroupTraffic> traffic_of(const DryLog& log) {
  std::vector<GroupTraffic> out;
  for (const DryEntry& entry : log) {
    const auto is_same = [&](const GroupTraffic& traffic) { return traffic.group == entry.group; };
    auto found = std::find_if(out.begin(), out.end(), is_same);
    if (found == out.end()) found = out.insert(out.end(), {entry.group, entry.group_size});
    ++found->calls;
    found->bytes += static_cast<double>(entry.bytes);
  }
  return out;
}

// The schedule of a run's pipeline.
struct Schedule {
  std::vector<int> rank_of_stage, stage_of_unit;
  std::shared_ptr<const IPipelineSchedule> plans;  // null: there is no pipeline

  ScheduleTable table(int ranks, int64_t microbatches) const {
    return plans->plan(ranks, static_cast<int>(rank_of_stage.size()), static_cast<int>(microbatches));
  }
};

Schedule schedule_of(Setup setup, const Units& units, PluginRegistry& plugins) {
  setup.backend = "gloo";  // the run's device may be none of this machine's
  const Plan plan = engine::choose(setup, plugins);
  if (plan.schedule == nullptr) return {};
  parallel::StageMap map = parallel::map_stages(units, plan, setup.sizes.pp);
  return {std::move(map.rank_of_stage), std::move(map.stage_of_unit), plan.schedule};
}

// For each rank of the pipeline the first one whose stages have as many units of the same sizes: their steps
// differ in microbatches alive alone, of which the first has most.
std::vector<int> like_ranks(const Schedule& schedule, const Units& units, int ranks) {
  std::map<std::vector<std::vector<int64_t>>, int> first;
  std::vector<int> out;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::vector<int64_t>> sizes;
    for (size_t stage = 0; stage < schedule.rank_of_stage.size(); ++stage) {
      if (schedule.rank_of_stage[stage] != rank) continue;
      sizes.emplace_back();
      for (size_t i = 0; i < units.size(); ++i) {
        if (schedule.stage_of_unit[i] != static_cast<int>(stage)) continue;
        int64_t numbers = 0;
        for (const ParameterSlot& slot : units[i]->parameters()) numbers += slot.tensor->numel();
        sizes.back().push_back(numbers);
      }
    }
    // The ends of the pipeline send and receive less.
    sizes.push_back({rank == 0 ? 1 : rank == ranks - 1 ? 2 : 0});
    out.push_back(first.try_emplace(std::move(sizes), rank).first->second);
  }
  return out;
}

class Estimate {
 public:
  Estimate(const Setup& setup, const PreparedModel& model, const Recipe& recipe, PluginRegistry& plugins,
           int64_t row_length, const MachineFile& machine, const Recorded& recorded)
      : setup_(setup),
        model_(model),
        recipe_(recipe),
        plugins_(plugins),
        row_length_(row_length),
        machine_(with_even_nodes(machine, setup.sizes.world)),
        recorded_(recorded) {}

  StepCost run(const std::optional<RunPipeline>& pipeline) {
    const Units units = model_.make();
    rows_ = recipe_.steps.local_batch_size;
    const Schedule schedule = schedule_of(setup_, units, plugins_);
    if (!pipeline || schedule.plans == nullptr) {
      RankTime time;
      StepCost out = of_rank(0, time);
      out.time = step_time(time, dry_passes_, out.passes);
      return finished(std::move(out));
    }
    rows_ = pipeline->microbatch_size * recorded_microbatches(schedule, pipeline->microbatches);
    const std::vector<int> like = like_ranks(schedule, units, setup_.sizes.pp);
    std::map<int, RankTime> times;
    StepCost most;
    for (const int rank : like) {
      if (times.contains(rank)) continue;
      StepCost cost = of_rank(rank, times[rank]);
      if (cost.peak >= most.peak) most = std::move(cost);
    }
    std::vector<RankTime> of_ranks;  // whose stages have numbers of their own
    for (int rank = 0; rank < setup_.sizes.pp; ++rank)
      of_ranks.push_back(renumbered(times.at(like[rank]), schedule, like[rank], rank));
    std::vector<const RankTime*> pointers;
    for (const RankTime& time : of_ranks) pointers.push_back(&time);
    const ScheduleTable table = schedule.table(setup_.sizes.pp, pipeline->microbatches);
    most.time = step_time(PipelineTimes{pointers, table, schedule.rank_of_stage, most.passes});
    most.microbatches_of_pass = pipeline->microbatches;
    return finished(std::move(most));
  }

 private:
  // The same actions on the stages of a like rank.
  static RankTime renumbered(RankTime time, const Schedule& schedule, int from, int to) {
    std::vector<int> own, other;
    for (size_t stage = 0; stage < schedule.rank_of_stage.size(); ++stage) {
      if (schedule.rank_of_stage[stage] == from) own.push_back(static_cast<int>(stage));
      if (schedule.rank_of_stage[stage] == to) other.push_back(static_cast<int>(stage));
    }
    for (TimedAction& one : time.actions)
      one.action.stage = other[std::find(own.begin(), own.end(), one.action.stage) - own.begin()];
    return time;
  }

  // The fewest, in whole rounds of the pipeline, that keep as many alive as all.
  int64_t recorded_microbatches(const Schedule& schedule, int64_t all) const {
    const int ranks = setup_.sizes.pp;
    if (recorded_.all_microbatches) return all;
    const std::vector<int> wanted = schedule::peak_alive(schedule.table(ranks, all));
    for (int64_t count = ranks; count < all; count += ranks)
      if (schedule::peak_alive(schedule.table(ranks, count)) == wanted) return count;
    return all;
  }

  std::vector<Batch> batches(int64_t count, bool draws) const {
    const auto options = at::TensorOptions(at::kLong).device(at::kMeta);
    Batch batch;
    batch.tokens = at::empty({rows_, row_length_}, options);
    batch.labels = at::empty({rows_, row_length_}, options);
    if (draws) batch.draws = at::empty({rows_, row_length_}, options);
    batch.step = std::numeric_limits<int64_t>::max();  // what begins with a later step counts
    return std::vector<Batch>(static_cast<size_t>(count), batch);
  }

  StepCost of_rank(int rank, RankTime& time) {
    const auto optimizer = recipe_.optimizer.make();
    WholeModel whole;
    engine::DryHost host = first_rank_of_stage(rank, setup_, model_, whole);
    host.step = step_config(recipe_);
    host.optimizer = optimizer.get();
    host.batch_rows = rows_;
    host.kernels = machine_.name != kCpu;
    int64_t passes = 1;
    host.batches = [&](const DeviceMesh& mesh) {
      const int64_t rows = recipe_.steps.local_batch_size * mesh.size("dp");
      passes = std::max<int64_t>(1, recipe_.steps.global_batch_size / rows);
      dry_passes_ = std::min(passes, recorded_.passes);
      batches_ = batches(dry_passes_, whole.draws);
      return std::span<const Batch>(batches_);
    };
    const engine::DryStep step = engine::dry_step(setup_, plugins_, host);
    time = rank_time(step, machine_);
    StepCost out = sums(step);
    out.stage = rank;
    out.passes = passes;
    return out;
  }

  StepCost sums(const engine::DryStep& step) const {
    StepCost out;
    out.peak = static_cast<double>(step.computed.peak(step.begin));
    out.before = static_cast<double>(step.computed.alive(step.begin));
    for (const OperatorCall& call : step.computed.calls)
      if (call.product && call.moment >= step.begin) out.products += call.cost.operations;
    const OperatorCost total = step.computed.total(step.begin);
    out.moved = total.read + total.written;
    out.traffic = traffic_of(step.step);
    const at::ScalarType dtype = product_dtype(setup_, model_);
    out.seconds = least_seconds(step, machine_, dtype == at::kBFloat16 || dtype == at::kHalf);
    return out;
  }

  StepCost finished(StepCost cost) const {
    cost.device = machine_.name;
    cost.device_memory = machine_.memory;
    cost.stages = setup_.sizes.pp;
    cost.row_length = row_length_;
    cost.tokens = static_cast<double>(recipe_.steps.global_batch_size) * static_cast<double>(row_length_);
    return cost;
  }

  const Setup& setup_;
  const PreparedModel& model_;
  const Recipe& recipe_;
  PluginRegistry& plugins_;
  const int64_t row_length_;
  const MachineFile machine_;
  const Recorded recorded_;
  int64_t rows_ = 1;  // of a recorded batch
  int64_t dry_passes_ = 1;
  std::vector<Batch> batches_;
};

}  // namespace

StepCost step_cost(const Setup& setup, const PreparedModel& model, const Recipe& recipe,
                   const std::optional<RunPipeline>& pipeline, PluginRegistry& plugins, int64_t row_length,
                   const MachineFile& machine, const Recorded& recorded) {
  return Estimate(setup, model, recipe, plugins, row_length, machine, recorded).run(pipeline);
}

}  // namespace heddle
