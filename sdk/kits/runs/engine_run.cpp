// Runs one rank of a training, and compares two trainings.
#include "engine_run.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "../attempt.h"
#include "../schedule/plain_schedule.h"
#include "heddle/engine/engine.h"
#include "heddle/model/module_unit.h"
#include "heddle/model/region.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/experts.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/router.h"
#include "heddle/nn/sequence_core.h"
#include "heddle/nn/token_loss.h"
#include "lib/testing/training.h"

namespace heddle::kits {
namespace {

constexpr double kRate = 0.1, kDecay = 0.1;

Node configuration_of(const Training& training) {
  return config::read_text("distributed: {" + training.distributed + "}\ndist_env: {backend: gloo}", "kit");
}

// Runs after the parallelizers of a training, and records whether one of their seams or links runs.
class Witness : public IParallelizer {
 public:
  explicit Witness(std::shared_ptr<Acted> acted) : acted_(std::move(acted)) {}
  Needs needs() const override { return {}; }
  std::string name() const override { return "heddle plugins check"; }
  std::vector<Placed> apply(Units& units, const DeviceMesh&) override {
    Links links;
    model::visit(units, [&](const std::string&, Module& module) {
      for (Seam* seam : {&module.input, &module.output}) watch(*seam);
      if (auto* linear = model::as<Linear>(module)) watch(linear->instead, links.linear);
      if (auto* experts = model::as<Experts>(module)) watch(experts->instead, links.experts);
      if (auto* core = model::as<AttentionCore>(module)) watch(core->instead, links.attention);
      if (auto* core = model::as<SequenceCore>(module)) watch(core->instead, links.sequence);
      if (auto* rows = model::as<RowGather>(module)) watch(rows->instead, links.rows);
      if (auto* loss = model::as<TokenLoss>(module)) watch(loss->instead, links.loss);
      if (auto* router = model::as<Router>(module)) {
        watch(router->agree, links.agree);
        watch(router->total, links.total);
      }
    });
    return {};
  }

 private:
  // Layers that share links share these links too, so that they are still computed together.
  struct Links {
    Linear::Instead::LinkPointer linear;
    Experts::Instead::LinkPointer experts;
    AttentionCore::Instead::LinkPointer attention;
    SequenceCore::Instead::LinkPointer sequence;
    RowGather::Instead::LinkPointer rows;
    TokenLoss::Instead::LinkPointer loss;
    Router::Agree::LinkPointer agree;
    Router::Total::LinkPointer total;
  };

  void watch(Seam& seam) {
    seam.wrap(0, [this](Seam::Transform transform) {
      return [acted = acted_, transform = std::move(transform)](at::Tensor x, const Batch& batch) {
        acted->ran();
        return transform(std::move(x), batch);
      };
    });
  }
  template <class Result, class... Arguments>
  void watch(Chain<Result(Arguments...)>& chain, typename Chain<Result(Arguments...)>::LinkPointer& link) {
    using Same = Chain<Result(Arguments...)>;
    if (chain.empty()) return;
    if (!link)
      link =
          Same::around(name(), std::numeric_limits<int>::min(),
                       [acted = acted_](Arguments... arguments, const typename Same::Next& next) -> Result {
                         acted->ran();
                         return next(std::forward<Arguments>(arguments)...);
                       });
    chain.add(link);
  }

  std::shared_ptr<Acted> acted_;
};

// Returns the plan of the section, with the settings of the training that a section does not have.
Plan plan_of(const Setup& setup, PluginRegistry& plugins, const Training& training) {
  Plan plan = engine::choose(setup, plugins);
  if (training.device != nullptr)
    plan.device = training.device->make();  // not started; used by checks of the model
  if (training.checkpointing != ActivationCheckpointing::none)
    plan.activation_checkpointing = training.checkpointing;
  if (training.alone != nullptr)
    plan.parallelizers.push_back(training.alone->make(training.alone->resolve(Node::map({})).values));
  if (training.acted) plan.parallelizers.push_back(std::make_shared<Witness>(training.acted));
  if (plan.schedule == nullptr && (training.split || training.several)) {
    plan.schedule = std::make_shared<PlainSchedule>(training.split);
    plan.pipeline.schedule = "kit";
  }
  return plan;
}

AxisTable table_of(const Setup& setup, const Training& training) {
  AxisTable table = setup.axis_table;
  if (training.alone != nullptr)
    table.add(training.alone->needs.new_axes, training.alone->needs.new_views, training.alone->name);
  return table;
}

// Returns the views of a parallelizer on one rank, with axes of size 1.
std::vector<View> views_of(const Setup& setup, const Training& training) {
  std::vector<View> views = setup.views;
  if (training.alone == nullptr) return views;
  const Needs& needs = training.alone->needs;
  for (const ViewInfo& info : needs.new_views) {
    View view{info.name, info.over, {{info.rest, 1}}};
    for (const AxisInfo& axis : needs.new_axes)
      if (axis.view == info.name) view.axes.push_back({axis.name, 1});
    views.push_back(std::move(view));
  }
  return views;
}

// AdamW with betas of 0, so that its first moment is the gradient. The large eps softens the update, so that
// small differences between gradients stay small.
StepConfig plain_steps() {
  StepConfig config;
  config.optimizer.lr = kRate;
  config.optimizer.beta1 = config.optimizer.beta2 = 0;
  config.optimizer.eps = 1;
  config.optimizer.weight_decay = kDecay;
  config.max_norm = std::nullopt;
  return config;
}

// Moves values that units already have to the device, as a host would; a tied parameter once.
void move_values(Units& units, c10::Device device) {
  std::map<std::string, at::Tensor> moved;
  for (const auto& unit : units)
    for (ParameterSlot& slot : unit->parameters()) {
      if (slot.tensor->is_meta() || slot.tensor->device() == device) continue;
      at::Tensor& here = moved[slot.name];
      if (!here.defined()) here = slot.tensor->detach().to(device).set_requires_grad(slot.trainable());
      slot.point(here);
    }
}

class TrainingRank {
 public:
  TrainingRank(PluginRegistry& plugins, const Training& training, Rendezvous& rendezvous, Results& results)
      : training_(training), results_(results) {
    const Setup setup = engine::validate(configuration_of(training), plugins, rendezvous.world_size());
    Plan plan = plan_of(setup, plugins, training);
    Units units = training.make_units();
    engine::check_model(plan, setup, units);
    move_values(units, rendezvous.device());
    mesh_.emplace(
        mesh::build(setup.axes, rendezvous, "kit", views_of(setup, training), table_of(setup, training)));
    stages_ = parallel::build(std::move(units), plan, *mesh_, training.values, 42);
  }

  void run() {
    StepLoop loop;
    loop.steps = training_.steps;
    loop.config = plain_steps();
    loop.batches = [this](int64_t step) {
      return training_.batches(step, mesh_->rank("dp"), mesh_->size("dp"));
    };
    loop.after_step = [&](Step& step, int64_t index) {
      if (training_.evaluates) (void)step.evaluate(loop.batches(index));
      for (const OptimizerState& state : step.optimizer_state())
        results_.gradients[static_cast<size_t>(index)].add(*mesh_, *state.shard, state.at("exp_avg"));
    };
    run_steps(stages_, *mesh_, loop, results_);
    if (training_.acted && is_placed(training_.acted->axis)) training_.acted->yes = true;
  }

 private:
  bool is_placed(const std::string& axis) {
    const auto has = [&](const std::vector<std::string>& axes) {
      return std::find(axes.begin(), axes.end(), axis) != axes.end();
    };
    const std::vector<Shard*> shards = stages_.shards();
    return std::any_of(shards.begin(), shards.end(),
                       [&](const Shard* shard) { return has(shard->axes) || has(shard->partial); });
  }

  const Training& training_;
  Results& results_;
  std::optional<DeviceMesh> mesh_;
  Stages stages_;
};

}  // namespace

bool is_recomputed() {
  const model::Region* const region = model::Region::active();
  return region != nullptr && !region->drops_values();
}

void refuse_or_pass(PluginRegistry& plugins, const Training& training) {
  try {
    const Setup setup = engine::validate(configuration_of(training), plugins, training.ranks);
    const Plan plan = plan_of(setup, plugins, training);
    Units units = training.make_units();
    engine::check_model(plan, setup, units);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::plugin_failed && error.code() != ErrorCode::internal)
      throw NotRun{error.message(), error.where()};
    throw;
  }
}

Outcome train(PluginRegistry& plugins, const Training& training) {
  Results results;
  results.gradients.resize(static_cast<size_t>(training.steps));
  run_ranks(training.ranks, training.device,
            [&](Rendezvous& rendezvous) { TrainingRank(plugins, training, rendezvous, results).run(); });
  return results.take();
}

std::string trains_equally(PluginRegistry& plugins, const Training& training, const Training& oracle) {
  refuse_or_pass(plugins, training);
  const Outcome want = train(plugins, oracle), got = train(plugins, training);
  compare(got, want);
  return distance(got, want);
}

}  // namespace heddle::kits
