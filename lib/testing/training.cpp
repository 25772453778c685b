// The steps of one rank, and what it reports.
#include "lib/testing/training.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

namespace heddle::kits {
namespace {

// The numbers of the steps. The values of one report may come with the next step.
class Reports {
 public:
  void add(StepReport report, bool is_known) {
    read();
    last_ = std::move(report);
    if (is_known) read();
  }
  void read() {
    if (!last_) return;
    const StepReport report = *std::exchange(last_, std::nullopt);
    numbers.losses.push_back(report.loss.item<double>());
    numbers.norms.push_back(
        report.skipped() || !report.grad_norm.defined() ? -1 : report.grad_norm.item<double>());
    if (!report.side_values.layout) return;
    for (const SideLayout::Entry& entry : report.side_values.layout->entries()) {
      const at::Tensor value = report.side_values.find(entry.spec.name).to(at::kCPU).contiguous();
      const double* const first = value.const_data_ptr<double>();
      auto& all = numbers.sides[entry.spec.name];
      all.insert(all.end(), first, first + value.numel());
    }
  }

  Outcome numbers;

 private:
  std::optional<StepReport> last_;
};

void load_state(Step& step, const Outcome& from) {
  const at::NoGradGuard no_gradients;
  for (const OptimizerState& state : step.optimizer_state()) {
    const std::string& name = state.shard->name;
    state.at("exp_avg").copy_(box_of(*state.shard, from.averages.at(name)));
    state.at("exp_avg_sq").copy_(box_of(*state.shard, from.squares.at(name)));
    state.at("step").copy_(from.steps.at(name).max());
  }
}

void collect(Step& step, Stages& stages, const DeviceMesh& mesh, Results& results) {
  for (Shard* shard : stages.shards()) results.parameters.add(mesh, *shard, shard->tensor);
  for (const OptimizerState& state : step.optimizer_state()) {
    if (!state.has("exp_avg")) continue;
    const at::Tensor& average = state.at("exp_avg");
    results.averages.add(mesh, *state.shard, average);
    results.squares.add(mesh, *state.shard, state.at("exp_avg_sq"));
    results.steps.add(mesh, *state.shard, at::zeros_like(average, at::kCPU) + state.at("step").to(at::kCPU));
  }
}

// Notes the first number that this rank reports differently from the first rank that reported.
void note_difference(const std::string& what, const std::vector<double>& first,
                     const std::vector<double>& here, int rank, double most, std::string& fault) {
  const std::string who = "rank " + std::to_string(rank) + " reports ";
  if (fault.empty() && first.size() != here.size())
    fault = who + std::to_string(here.size()) + " values of the " + what + ", and another rank " +
            std::to_string(first.size());
  for (size_t i = 0; fault.empty() && i < first.size(); ++i)
    if (first[i] != here[i] && !(std::isnan(first[i]) && std::isnan(here[i])) &&
        !(std::abs(first[i] - here[i]) <= most * std::abs(here[i])))
      fault = who + "the " + what + " " + std::to_string(here[i]) + " at step " + std::to_string(i) +
              ", and another rank " + std::to_string(first[i]);
}

// Every rank knows the same numbers.
void merge(const Outcome& here, const DeviceMesh& mesh, int peak, const StepLoop& loop, Results& results) {
  const int rank = mesh.rank("world");
  const std::lock_guard lock(results.mutex);
  Outcome& all = results.common;
  all.peaks.resize(static_cast<size_t>(mesh.size("world")));
  all.peaks[static_cast<size_t>(rank)] = peak;
  if (all.losses.empty()) {
    all.losses = here.losses, all.norms = here.norms;
    all.validation = here.validation, all.sides = here.sides;
    return;
  }
  note_difference("loss", all.losses, here.losses, rank, 0, results.fault);
  note_difference("gradient norm", all.norms, here.norms, rank, loop.norm_between_ranks, results.fault);
  note_difference("validation loss", all.validation, here.validation, rank, 0, results.fault);
  if (results.fault.empty() && all.sides.size() != here.sides.size())
    results.fault = "rank " + std::to_string(rank) + " reports other side outputs than another rank";
  for (const auto& [name, values] : all.sides) {
    const auto side = here.sides.find(name);
    note_difference("side output '" + name + "'", values,
                    side == here.sides.end() ? std::vector<double>() : side->second, rank, 0, results.fault);
  }
}

}  // namespace

Outcome Results::take() {
  Outcome out = common;
  for (const WholeTensors& each : gradients) out.gradients.push_back(each.take("the gradient of"));
  out.parameters = parameters.take("the parameter");
  out.averages = averages.take("exp_avg of");
  out.squares = squares.take("exp_avg_sq of");
  out.steps = steps.take("the step of");
  if (!fault.empty()) found(fault);
  return out;
}

void run_steps(Stages& stages, const DeviceMesh& mesh, const StepLoop& loop, Results& results) {
  const auto optimizer =
      loop.make_optimizer ? loop.make_optimizer() : train::make_adamw(loop.config.optimizer);
  Step step(stages, mesh, loop.config, *optimizer);
  if (loop.from != nullptr) load_state(step, *loop.from);
  Reports reports;
  for (int64_t i = 0; i < loop.steps; ++i) {
    const std::vector<Batch> mine = loop.batches(loop.first + i);
    StepReport report = step.run(mine, loop.config.optimizer.lr, loop.config.optimizer.weight_decay);
    reports.add(std::move(report), !step.unsettled());
    if (loop.validate_every > 0 && (i + 1) % loop.validate_every == 0)
      reports.numbers.validation.push_back(step.evaluate(mine).loss.item<double>());
    if (loop.after_step) loop.after_step(step, i);
  }
  step.settle();
  reports.read();
  collect(step, stages, mesh, results);
  merge(reports.numbers, mesh, step.peak_alive(), loop, results);
}

}  // namespace heddle::kits
