// Runs dry steps of each kind of stage, sums their records, and prints them.
#include "lib/cost/step_cost.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <utility>

#include "heddle/base/text.h"
#include "heddle/engine/engine.h"
#include "heddle/schedule/simulate.h"
#include "lib/cost/rank_size.h"

namespace heddle {
namespace {

constexpr const char* kCpu = "cpu";
constexpr int64_t kFewMicrobatches = 3;

double least_seconds(const engine::DryStep& step, const MachineFile& machine, bool in_16_bits) {
  const double products = in_16_bits ? machine.peak_16 : machine.peak_32, other = machine.peak_32;
  if (products == 0 || machine.memory_bandwidth == 0 || machine.device == kCpu) return 0;
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

// Schedule of a run's pipeline.
struct Schedule {
  std::vector<int> rank_of_stage, stage_of_unit;
  std::shared_ptr<const IPipelineSchedule> plans;  // null: no pipeline

  ScheduleTable table(int ranks, int64_t microbatches) const {
    return plans->plan(ranks, static_cast<int>(rank_of_stage.size()), static_cast<int>(microbatches));
  }
};

Schedule schedule_of(Setup setup, const Units& units, PluginRegistry& plugins) {
  setup.backend = "gloo";  // the run's device may not be on this machine
  const Plan plan = engine::choose(setup, plugins);
  if (plan.schedule == nullptr) return {};
  parallel::StageMap map = parallel::map_stages(units, plan, setup.sizes.pp);
  return {std::move(map.rank_of_stage), std::move(map.stage_of_unit), plan.schedule};
}

// Returns for each rank of the pipeline the first rank on the same kind of machine whose stages have units of
// the same number and sizes. Their steps differ only in live microbatches, of which the first rank has the
// most.
std::vector<int> like_ranks(const Schedule& schedule, const Units& units, int ranks,
                            const std::function<int64_t(int)>& kind_of_machine) {
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
    // The first and the last rank send and receive less.
    sizes.push_back({rank == 0 ? 1 : rank == ranks - 1 ? 2 : 0, kind_of_machine(rank)});
    out.push_back(first.try_emplace(std::move(sizes), rank).first->second);
  }
  return out;
}

class Estimate {
 public:
  Estimate(const StepPlan& plan, PluginRegistry& plugins, int64_t row_length, const Machines& machines,
           const Recorded& recorded)
      : plan_(plan), plugins_(plugins), row_length_(row_length), machines_(machines), recorded_(recorded) {
    const int64_t world = plan.setup.sizes.world;
    if (machines_.size() == 1) machines_.front().ranks = world;
    for (MachinePart& part : machines_) part.machine = with_even_nodes(part.machine, part.ranks);
  }

  StepCost run() {
    const Units units = plan_.make_units();
    const int64_t microbatches = plan_.microbatches_of_pass;
    const int ranks = plan_.setup.sizes.pp;
    rows_ = plan_.local_batch_size;
    const Schedule schedule = schedule_of(plan_.setup, units, plugins_);
    if (schedule.plans == nullptr) {
      RankTime time;
      StepCost out = of_rank(0, /*of_all=*/true, time);
      out.time = step_time(time, dry_passes_, out.passes);
      out.recorded = dry_passes_;
      return finished(std::move(out));
    }
    const int64_t count = recorded_microbatches(schedule, microbatches);
    rows_ = rows_ / microbatches * count;
    unrecorded_ = schedule::peak_alive(schedule.table(ranks, microbatches));
    const std::vector<int> alive = schedule::peak_alive(schedule.table(ranks, count));
    for (int rank = 0; rank < ranks; ++rank) {
      goes_on_.push_back(count < microbatches && unrecorded_[rank] < microbatches);
      unrecorded_[rank] -= alive[rank];
    }
    const int64_t stride = plan_.setup.sizes.world / ranks;
    const std::vector<int> like = like_ranks(
        schedule, units, ranks, [&](int rank) { return static_cast<int64_t>(machine_index(rank * stride)); });
    std::map<int, RankTime> times;
    StepCost most;
    for (const int rank : like) {
      if (times.contains(rank)) continue;
      StepCost cost = of_rank(rank, /*of_all=*/false, times[rank]);
      if (cost.filled() >= most.filled()) most = std::move(cost);
    }
    std::vector<RankTime> of_ranks;  // with the stages' own numbers
    for (int rank = 0; rank < ranks; ++rank)
      of_ranks.push_back(renumbered(times.at(like[rank]), schedule, like[rank], rank));
    std::vector<const RankTime*> pointers;
    for (const RankTime& time : of_ranks) pointers.push_back(&time);
    const ScheduleTable table = schedule.table(ranks, microbatches);
    most.time = step_time(PipelineTimes{pointers, table, schedule.rank_of_stage, most.passes});
    most.microbatches_of_pass = microbatches;
    most.recorded = count * dry_passes_;
    const int64_t drawn = rows_ * microbatches / plan_.local_batch_size;
    const ScheduleTable recorded = schedule.table(ranks, drawn);
    const std::vector<schedule::Costs> costs = stage_costs(pointers, schedule.rank_of_stage.size());
    for (const schedule::Costs& cost : costs) most.stage_seconds.push_back(cost.forward + cost.backward);
    const schedule::Simulation run = schedule::simulate(recorded, schedule.rank_of_stage, costs);
    for (RankTimeline& timeline : timelines_) {
      const auto rank = static_cast<size_t>(timeline.rank);
      move_to_schedule(timeline, of_ranks[rank].actions, recorded[rank], run.times[rank]);
    }
    return finished(std::move(most));
  }

 private:
  // Returns the index of the machine that a rank is on.
  size_t machine_index(int64_t rank) const {
    size_t index = 0;
    for (; index + 1 < machines_.size() && rank >= machines_[index].ranks; ++index)
      rank -= machines_[index].ranks;
    return index;
  }

  // Returns the time on the rank's own machine. Without a pipeline the ranks wait for each other, so `of_all`
  // returns the time on the slowest machine.
  RankTime time_of(const engine::DryStep& step, const MachineFile& own, bool of_all) const {
    RankTime time = rank_time(step, own, recorded_.with_timelines);
    for (size_t i = 0; of_all && machines_.size() > 1 && i < machines_.size(); ++i) {
      RankTime other = rank_time(step, machines_[i].machine, recorded_.with_timelines);
      if (other.seconds > time.seconds) time = std::move(other);
    }
    return time;
  }

  // Returns the time with the actions renumbered to the stages of a similar rank.
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

  // Returns the smallest number of whole pipeline rounds with as many live microbatches as all of them, and
  // one round more, which runs beside the gradients of the first ones. If a rank has one stage, three
  // microbatches are enough: each further live one adds the same memory.
  int64_t recorded_microbatches(const Schedule& schedule, int64_t all) const {
    const int ranks = plan_.setup.sizes.pp;
    if (recorded_.all_microbatches) return all;
    const std::vector<int> wanted = schedule::peak_alive(schedule.table(ranks, all));
    if (!recorded_.with_timelines && static_cast<int>(schedule.rank_of_stage.size()) == ranks)
      return std::min<int64_t>(all, kFewMicrobatches);
    for (int64_t count = ranks; count < all; count += ranks)
      if (schedule::peak_alive(schedule.table(ranks, count)) == wanted) return std::min(all, count + ranks);
    return all;
  }

  // Returns the peak memory of the step, with what was not recorded: activations of further live
  // microbatches, and microbatches that run beside the gradients of the first one.
  double peak_of(const engine::DryStep& step, int rank) const {
    const ComputeLog& log = step.computed;
    const auto recorded = static_cast<double>(log.peak(step.begin));
    if (goes_on_.empty() || (unrecorded_[rank] == 0 && !goes_on_[rank])) return recorded;
    std::vector<RanAction> forwards, backwards;
    int64_t schedule_end = 0;
    for (const RanAction& one : step.recording.actions) {
      if (one.action.kind == Action::forward) forwards.push_back(one);
      if (one.action.kind == Action::backward) backwards.push_back(one);
      schedule_end = std::max(schedule_end, one.last_moment);
    }
    const auto peak_within = [&](int64_t first, int64_t last) {
      ComputeLog within;
      for (const Allocation& one : log.allocations)
        if (one.begin <= last) within.allocations.push_back(one);
      return static_cast<double>(within.peak(first));
    };
    const auto alive = [&](int64_t moment) { return static_cast<double>(log.alive(moment)); };
    const double of_microbatch =
        unrecorded_[rank] == 0 ? 0 : alive(forwards.at(2).last_moment) - alive(forwards.at(1).last_moment);
    double out =
        std::max(recorded, peak_within(step.begin, schedule_end) + unrecorded_[rank] * of_microbatch);
    const bool is_few = forwards.size() == kFewMicrobatches && backwards.size() == kFewMicrobatches;
    if (!goes_on_[rank] || !is_few || backwards[0].first_moment < forwards[2].last_moment) return out;
    // The first backward has left its gradients. All recorded forwards precede it, so what the next forward
    // and the next backward take is added.
    const auto taken = [&](const RanAction& one) {
      return peak_within(one.first_moment, one.last_moment) - alive(one.first_moment);
    };
    const double after = alive(backwards[0].last_moment) + unrecorded_[rank] * of_microbatch;
    const double kept = alive(forwards[2].last_moment) - alive(forwards[1].last_moment);
    return std::max({out, after + taken(forwards[2]), after + kept + taken(backwards[1])});
  }

  std::vector<Batch> batches(int64_t count, bool draws) const {
    const auto options = at::TensorOptions(at::kLong).device(at::kMeta);
    Batch batch;
    batch.tokens = at::empty({rows_, row_length_}, options);
    batch.labels = at::empty({rows_, row_length_}, options);
    if (draws) batch.draws = at::empty({rows_, row_length_}, options);
    batch.step = std::numeric_limits<int64_t>::max();  // work that starts at a later step is included
    return std::vector<Batch>(static_cast<size_t>(count), batch);
  }

  StepCost of_rank(int rank, bool of_all, RankTime& time) {
    const auto optimizer = plan_.make_optimizer();
    WholeModel whole;
    engine::DryHost host = first_rank_of_stage(rank, plan_, whole);
    host.step = plan_.step;
    host.optimizer = optimizer.get();
    host.batch_rows = rows_;
    const MachineFile& machine = machines_[machine_index(host.rank)].machine;
    host.kernels = machine.device != kCpu;
    int64_t passes = 1;
    host.batches = [&](const DeviceMesh& mesh) {
      const int64_t rows = plan_.local_batch_size * mesh.size("dp");
      passes = std::max<int64_t>(1, plan_.global_batch_size / rows);
      dry_passes_ = std::min(passes, recorded_.passes);
      batches_ = batches(dry_passes_, whole.draws);
      return std::span<const Batch>(batches_);
    };
    const engine::DryStep step = engine::dry_step(plan_.setup, plugins_, host);
    time = time_of(step, machine, of_all);
    if (recorded_.with_timelines)
      timelines_.push_back(
          {rank, time.seconds, std::move(time.timeline), std::move(time.memory), peak_by_kind(step)});
    StepCost out = sums(step, machine);
    out.peak = peak_of(step, rank);
    out.stage = rank;
    out.device_memory = machine.memory;
    for (const MachinePart& part : machines_)
      if (of_all) out.device_memory = std::min(out.device_memory, part.machine.memory);
    out.passes = passes;
    return out;
  }

  StepCost sums(const engine::DryStep& step, const MachineFile& machine) const {
    StepCost out;
    out.before = static_cast<double>(step.computed.alive(step.begin));
    for (const OperatorCall& call : step.computed.calls)
      if (call.product && call.moment >= step.begin) out.products += call.cost.operations;
    const OperatorCost total = step.computed.total(step.begin);
    out.moved = total.read + total.written;
    out.traffic = traffic_of(step.step);
    const bool half = plan_.products == at::kBFloat16 || plan_.products == at::kHalf;
    out.seconds = least_seconds(step, machine, half);
    return out;
  }

  StepCost finished(StepCost cost) const {
    cost.timelines = timelines_;
    for (const MachinePart& part : machines_)
      cost.device += (cost.device.empty() ? "" : " and ") + part.machine.name;
    cost.stages = plan_.setup.sizes.pp;
    cost.row_length = row_length_;
    cost.tokens = static_cast<double>(plan_.global_batch_size) * static_cast<double>(row_length_);
    cost.ranks = plan_.setup.sizes.world;
    double peak = 0;  // of all devices
    for (const MachinePart& part : machines_)
      peak += static_cast<double>(part.ranks) * part.machine.peak(plan_.products);
    if (plan_.flops_per_token && peak > 0 && cost.time.seconds > 0)
      cost.mfu = 100 * plan_.flops_per_token(row_length_) * cost.tokens / cost.time.seconds / peak;
    return cost;
  }

  const StepPlan& plan_;
  PluginRegistry& plugins_;
  const int64_t row_length_;
  Machines machines_;
  const Recorded recorded_;
  int64_t rows_ = 1;             // rows per recorded batch
  std::vector<int> unrecorded_;  // [rank of the pipeline]: live microbatches that are not recorded
  std::vector<bool> goes_on_;    // [rank of the pipeline]: forwards after the first backward are not recorded
  int64_t dry_passes_ = 1;
  std::vector<Batch> batches_;
  std::vector<RankTimeline> timelines_;
};

}  // namespace

StepCost step_cost(const StepPlan& plan, PluginRegistry& plugins, int64_t row_length,
                   const Machines& machines, const Recorded& recorded) {
  return Estimate(plan, plugins, row_length, machines, recorded).run();
}

namespace {

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

std::string time_json(const StepCost& cost) {
  if (cost.time.seconds <= 0) return "\"step_seconds\": null";
  char text[160], mfu[16] = "null";
  if (cost.mfu > 0) std::snprintf(mfu, sizeof(mfu), "%.4g", cost.mfu);
  const double rate = cost.tokens / cost.time.seconds;
  std::snprintf(text, sizeof(text),
                "\"step_seconds\": %.6g, \"tokens_per_second\": %.6g, \"tokens_per_second_per_gpu\": %.6g, "
                "\"mfu\": %s, \"limit\": ",
                cost.time.seconds, rate, rate / cost.ranks, mfu);
  std::string parts;
  for (const auto& [name, seconds] : cost.time.parts()) {
    char part[32];
    std::snprintf(part, sizeof(part), ": %.6g", seconds);
    parts += (parts.empty() ? "" : ", ") + text::quoted(name) + part;
  }
  return text + text::quoted(cost.time.limit()) + ", \"parts\": {" + parts + "}";
}

std::string to_text(const StepCost& cost) {
  const std::string of_stage = cost.stages == 1 ? ""
                                                : " of stage " + std::to_string(cost.stage) + " of " +
                                                      std::to_string(cost.stages) + ", which holds most";
  std::string out = "cost of a step per rank on " + cost.device + of_stage + ": " + batch_text(cost) +
                    ", rows of " + std::to_string(cost.row_length) + " tokens\n";
  out += "  memory: at most " + bytes_text(cost.peak);
  if (cost.device_memory > 0) out += " of " + bytes_text(cost.device_memory);
  out += ", of which " + bytes_text(cost.before) + " before the step\n";
  out += "  computing: " + count_text(static_cast<int64_t>(std::min(cost.products, 9e18))) +
         " operations in products, " + bytes_text(cost.moved) + " read and written";
  if (cost.seconds > 0) out += "; at least " + seconds_text(cost.seconds) + " at the device's peaks";
  out += "\n";
  if (cost.time.seconds > 0)
    out += "  time: " + seconds_text(cost.time.seconds) + " per step, " +
           count_text(static_cast<int64_t>(cost.tokens / cost.time.seconds)) +
           " tokens per second, limited by " + cost.time.limit() + "; `heddle plan` compares layouts\n";
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
         ", \"least_seconds\": " + seconds + ", " + time_json(cost) + ", \"collectives\": {" + traffic + "}}";
}

}  // namespace heddle
