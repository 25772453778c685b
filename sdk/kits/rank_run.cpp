// The steps of one rank.
#include "rank_run.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ne.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "heddle/parallel/build.h"
#include "lib/train/optimizer/on_device.h"
#include "schedule/plain_schedule.h"

namespace heddle::kits {
namespace {

constexpr double kSmallNorm = 0.01;  // small enough that every step is clipped

double label_tokens(int64_t step) {
  const Batch all = rows_of(step, 0, 1, true).front();
  return at::ne(all.labels, Batch::kIgnore).sum().item<double>();
}

std::vector<Axis> axes_of(const Needs& needs, const TrainingRun& training) {
  const bool sharded = has_axis(needs, "dp_shard");
  std::vector<Axis> axes;
  for (const std::string& name : needs.axes) {
    int size = 1;
    if (name == "dp_shard" || (name == "dp" && !sharded)) size = training.dp;
    if (name == "dp_replicate") size = training.replicas;
    if (name == "tp") size = training.tp;
    if (name == "pp") size = training.pp;
    const auto& optional = needs.axes_when_used;
    if (size == 1 && std::find(optional.begin(), optional.end(), name) != optional.end()) continue;
    axes.push_back({name, size});
  }
  return axes;
}

}  // namespace

RankRun::RankRun(const Subject& subject, const TrainingRun& training, Rendezvous& rendezvous, Shared& shared)
    : training_(training),
      shared_(shared),
      rendezvous_(rendezvous),
      mesh_(mesh::build(axes_of(subject.needs, training), rendezvous, "kit: " + subject.name)),
      stages_(build(subject)) {}

void RankRun::run() {
  if (training_.lists_all) check_list();
  training_.adamw ? run_adamw() : run_plain();
}

void RankRun::after_step(int64_t index) {
  if (training_.evaluates) evaluate(index);
  if (training_.unshards) unshard(static_cast<size_t>(index));
}

void RankRun::run_plain() {
  runner_.emplace(stages_, mesh_);
  if (training_.resumes != nullptr) resume();
  const Named first = training_.reloads ? values() : Named{};
  const double before = training_.reloads ? evaluate(0) : 0;
  for (int64_t i = 0; i < training_.steps; ++i) {
    plain_step(i);
    after_step(i);
    if (training_.reloads) reload(first, before);
  }
  for (Shard* shard : stages_.shards()) shared_.results.parameters.add(mesh_, *shard, shard->tensor);
  if (training_.keeps != nullptr) keep();
}

void RankRun::run_adamw() {
  StepLoop loop;
  loop.first = training_.first_step;
  loop.steps = training_.steps;
  loop.config.optimizer.lr = 0.02;
  loop.config.optimizer.weight_decay = 0.1;
  if (training_.restarts) loop.config.max_norm = kSmallNorm;
  loop.batches = [this](int64_t step) { return batches(step - training_.first_step); };
  loop.from = training_.from;
  loop.after_step = [&](Step& step, int64_t index) {
    step_ = &step;
    after_step(index);
  };
  run_steps(stages_, mesh_, loop, shared_.results);
}

Stages RankRun::build(const Subject& subject) {
  Plan plan;
  plan.strategy = subject.make();
  plan.strategy_name = subject.name;
  plan.activation_checkpointing = training_.checkpointing;
  if (training_.tp > 1) plan.parallelizers.push_back(std::make_unique<LayerSplit>());
  plan.schedule = training_.schedule;
  if (!plan.schedule && training_.drive >= TrainingRun::Drive::forwards_first)
    plan.schedule = std::make_shared<PlainSchedule>(training_.drive == TrainingRun::Drive::split);
  plan.pipeline.schedule = "kit";
  plan.pipeline.post_validation = training_.restarts;
  const auto source = [this](const Shard& shard) {
    if (training_.from == nullptr) return false;
    const at::NoGradGuard no_gradients;
    shard.tensor.copy_(box_of(shard, training_.from->parameters.at(shard.name)));
    return true;
  };
  Shape shape = training_.shape;
  shape.home = mesh_.device();
  if (training_.values_differ) shape.first_value = mesh_.rank("dp");
  return parallel::build(small_model(shape), plan, mesh_, source, 42);
}

std::vector<Batch> RankRun::batches(int64_t step) const {
  std::vector<Batch> out = rows_of(training_.first_step + step, mesh_.rank("dp"), mesh_.size("dp"),
                                   training_.drive >= TrainingRun::Drive::forwards_first);
  if (training_.drive == TrainingRun::Drive::by_hand || training_.unshards)  // as a host's own loop does
    for (Batch& batch : out) batch = train::on_device(batch, mesh_.device());
  return out;
}

double RankRun::evaluate(int64_t step) {
  if (step_ != nullptr) return step_->evaluate(batches(step)).loss.item<double>();
  return training_.drive == TrainingRun::Drive::by_hand ? forward_by_hand(step)
                                                        : runner_->evaluate(batches(step)).item<double>();
}

double RankRun::forward_by_hand(int64_t step) {
  const at::NoGradGuard no_gradients;
  double sum = 0;
  for (const Batch& batch : batches(step)) sum += stages_.front()->forward({}, batch).at(0).item<double>();
  return sum;
}

double RankRun::backward_by_hand(const std::vector<Batch>& mine, double scale) {
  ParallelStage& stage = *stages_.front();
  double sum = 0;
  for (size_t i = 0; i < mine.size(); ++i) {
    const at::Tensor loss = stage.forward({}, mine[i]).at(0);
    sum += loss.item<double>();
    if (i + 1 == mine.size()) stage.expect_last_backward();
    torch::autograd::backward({loss * scale}, {});
  }
  return sum;
}

void RankRun::plain_step(int64_t index) {
  const std::vector<Batch> mine = batches(index);
  const double tokens = label_tokens(training_.first_step + index);
  const auto scale = [&] { return 1 / tokens; };
  const double sum = training_.drive == TrainingRun::Drive::by_hand
                         ? backward_by_hand(mine, scale())
                         : runner_->train(mine, scale).item<double>();
  for (const auto& stage : stages_) stage->finish_gradients();
  for (Shard* shard : stages_.shards()) take_gradient(*shard, shared_.results.gradients[index]);
  {
    const at::NoGradGuard no_gradients;  // in place, as an optimizer scales gradients
    for (Shard* shard : stages_.shards())
      if (shard->tensor.grad().defined()) shard->tensor.mutable_grad().mul_(0.5);
    for (Shard* shard : stages_.shards())
      if (shard->tensor.grad().defined()) shard->tensor.sub_(shard->tensor.grad());
  }
  for (Shard* shard : stages_.shards()) shard->tensor.mutable_grad() = at::Tensor();
  for (const auto& stage : stages_) stage->parameters_changed(ParametersChange::updated);
  const std::lock_guard lock(shared_.results.mutex);
  if (mesh_.rank("tp") == 0) shared_.results.common.losses[index] += sum / tokens;
}

void RankRun::take_gradient(const Shard& shard, WholeTensors& into) {
  const at::Tensor& gradient = shard.tensor.grad();
  if (!gradient.defined()) return;
  const std::string name = "the gradient of '" + shard.name + "' ";
  if (!shard.tensor.requires_grad()) found("'" + shard.name + "' has a gradient but does not require one");
  if (!gradient.sizes().equals(shard.tensor.sizes())) found(name + "has other sizes than its shard");
  if (gradient.is_view())
    found(name + "is an autograd view, which zero_grad() cannot detach: set it to .detach()");
  into.add(mesh_, shard, gradient);
}

}  // namespace heddle::kits
