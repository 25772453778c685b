// Builds the stages of a model with the engine, and runs its units one by one.
#include "built_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "../watch.h"
#include "core/base/running_call.h"
#include "core/parallel/single.h"
#include "heddle/parallel/build.h"
#include "lib/testing/whole_tensors.h"
#include "lib/train/optimizer/on_device.h"

namespace heddle::kits {
namespace {

const std::vector<Axis> kNoAxes = {{"tp", 1}};

Stages built(Units units, const DeviceMesh& mesh) {
  Plan plan;
  plan.strategy = parallel::make_single();
  plan.strategy_name = "single";
  return parallel::build(std::move(units), plan, mesh, telling_values, 42);
}

// Calls a function of the plugin, and rethrows its exceptions with the name of the function.
template <class Call>
auto in_words(const std::string& function, const Call& call) {
  const Watch* const watch = Watch::current();
  const std::string told = watch == nullptr ? "the plugin" : watch->the_plugin();
  const RunningCall::Scope scope(watch == nullptr ? "" : watch->plugin, function);
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    found(told + " threw in " + function + ": " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    found(told + " threw in " + function + ": " + error.what());
  }
}

Tensors run_unit(Unit& unit, Tensors inputs, const Batch& batch) {
  return in_words("forward() of the unit '" + std::string(unit.name()) + "'",
                  [&] { return unit.forward(std::move(inputs), batch); });
}

}  // namespace

bool telling_values(const Shard& shard) {
  if (!shard.tensor.requires_grad()) return false;
  Shard larger = shard;
  larger.init = {Init::Kind::normal, std::max(shard.init.std, 0.3)};
  parallel::initialise(larger, 7);
  const at::NoGradGuard no_gradients;
  if (shard.init.kind == Init::Kind::ones) shard.tensor.add_(1);
  return true;
}

Rows rows_for(const ModelSpec& spec) {
  const ModelFacts facts = spec.facts();
  return {facts.vocabulary, std::min<int64_t>(8, facts.max_positions), 6, false};
}

Batch ModelSite::here(const Batch& batch) const {
  return train::on_device(batch, rendezvous.device());
}

BuiltModel::BuiltModel(const ModelSite& site)
    : BuiltModel(site, site.rendezvous.device().is_cpu() ? at::kDouble : at::kFloat) {}

BuiltModel::BuiltModel(const ModelSite& site, at::ScalarType dtype)
    : mesh_(mesh::build(kNoAxes, site.rendezvous, "kit")) {
  Units units = site.spec.make_units(at::TensorOptions(at::kMeta).dtype(dtype));
  for (const auto& unit : units) units_.push_back(unit.get());
  stages_ = built(std::move(units), mesh_);
  if (const auto& layout = stages_.attached().side_outputs; layout && !layout->empty())
    sides_ = std::make_unique<SideOutputs>(layout, mesh_.device());
}

// Collects auxiliary losses, which have a gradient if they are counted in the loss.
Batch BuiltModel::collected(Batch batch) {
  if (sides_) {
    sides_->begin([share = auxiliary_](LossDivisor) { return share; });
    batch.side_outputs = sides_.get();
  }
  return batch;
}

at::Tensor BuiltModel::forward(const Batch& given) {
  const Batch batch = collected(given);
  Tensors values;
  for (Unit* unit : units_) values = run_unit(*unit, std::move(values), batch);
  if (values.size() != 1 || !values[0].defined())
    found("the last unit gives " + std::to_string(values.size()) +
          " tensors, where unit.h says {sum of token losses} or {logits}");
  return values[0];
}

void BuiltModel::each_unit(const Batch& given, const Visitor& visitor) {
  const Batch batch = collected(given);
  Tensors values;
  for (Unit* unit : units_) {
    Tensors inputs;
    for (const at::Tensor& value : values) {
      inputs.push_back(value.detach());
      if (value.is_floating_point()) inputs.back().set_requires_grad(true);
    }
    values = run_unit(*unit, inputs, batch);
    visitor(*unit, inputs, values);
  }
}

double BuiltModel::main_loss(const Batch& batch) {
  const at::NoGradGuard no_gradients;
  double sum = forward(batch).sum().item<double>();
  if (!sides_ || auxiliary_ == 0) return sum;
  for (const SideLayout::Entry& entry : sides_->layout()->entries())
    if (entry.spec.is_loss) sum += auxiliary_ * sides_->sums()[entry.begin].item<double>();
  return sum;
}

std::map<std::string, at::Tensor> BuiltModel::gradients(const Batch& batch) {
  for (Shard* shard : stages_.shards()) shard->tensor.mutable_grad() = at::Tensor();
  const at::Tensor sum = forward(batch).sum();
  in_words("the backward of the model", [&] { torch::autograd::backward({sum}, {}); });
  std::map<std::string, at::Tensor> out;
  for (Shard* shard : stages_.shards()) {
    const at::Tensor& gradient = shard->tensor.grad();
    out[shard->name] = gradient.defined() ? gradient.detach().clone() : at::Tensor();
    shard->tensor.mutable_grad() = at::Tensor();
  }
  return out;
}

}  // namespace heddle::kits
