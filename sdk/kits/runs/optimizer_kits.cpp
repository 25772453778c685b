// The kits of optimizers: updates of small parameters, sharded over ranks and whole.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <atomic>

#include "../given_fields.h"
#include "../kind_kits.h"
#include "../plugin_kit.h"
#include "../watch.h"
#include "heddle/mesh/call.h"
#include "heddle/plugin/optimizer.h"
#include "lib/testing/whole_tensors.h"
#include "rank_optimizer.h"
#include "ranks.h"

namespace heddle::kits {
namespace {

// The rendezvous and the factory of an optimizer on one rank.
struct Alone {
  const Make& make;
  Rendezvous& rendezvous;
  at::Tensor number(double value) const {  // one element, as in Step
    return at::full({1}, value, at::TensorOptions(at::kFloat).device(rendezvous.device()));
  }
};

// An optimizer in a world of one rank.
struct AloneOptimizer {
  DeviceMesh mesh;
  RankOptimizer rank;
  explicit AloneOptimizer(const Alone& alone, at::TensorOptions options = at::kFloat, StepConfig config = {})
      : mesh(mesh::build(std::vector<Axis>{{"dp_shard", 1}}, alone.rendezvous, "kit: optimizer")),
        rank(alone.make, mesh, options.has_device() ? options : options.device(mesh.device()), config) {}
};

void expect_equal(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want,
                  const std::string& what) {
  if (got.size() != want.size()) found(what + ": the set of state tensors differs");
  for (size_t i = 0; i < got.size(); ++i)
    if (!at::equal(got[i], want[i]))
      found(
          what +
          (i < kWholes.size() ? std::string(": the weight '") + kWholes[i].name + "'" : ": a state tensor") +
          " is not bitwise equal");
}

std::string continues(const Alone& alone) {
  AloneOptimizer whole(alone), first(alone), second(alone);
  for (int64_t step = 0; step < 6; ++step) whole.rank.step(step);
  for (int64_t step = 0; step < 3; ++step) first.rank.step(step);
  const std::vector<at::Tensor> from = first.rank.all(), to = second.rank.all();
  if (from.size() != to.size())
    found("state() has other tensors after three updates than after start(): create all of them in start()");
  for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
  for (int64_t step = 3; step < 6; ++step) second.rank.step(step);
  expect_equal(second.rank.all(), whole.rank.all(),
               "three updates after copying weights and state(), compared with six updates");
  return std::to_string(from.size() - kWholes.size()) + " tensors";
}

Named train_on(const Make& make, int ranks, const CheckDevice* device) {
  WholeTensors weights;
  run_ranks(ranks, device, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(std::vector<Axis>{{"dp_shard", ranks}}, rendezvous, "kit: optimizer");
    RankOptimizer mine(make, mesh, at::TensorOptions(at::kFloat).device(mesh.device()));
    for (int64_t step = 0; step < 4; ++step) mine.step(step);
    for (const Shard* shard : mine.shards()) weights.add(mesh, *shard, shard->tensor);
  });
  return weights.take("the parameter");
}

std::string is_independent_of_the_split(const Make& make, int ranks) {
  const Named want = train_on(make, 1, nullptr), got = train_on(make, ranks, check_device());
  double most = 0;
  for (const auto& [name, tensor] : want) {
    const double off = (got.at(name) - tensor).abs().max().item<double>(),
                 size = tensor.abs().max().item<double>();
    most = std::max(most, off / size);
    if (!(off <= 1e-5 * size))
      found("after 4 updates '" + name + "' differs from the result of one rank by " + written(off / size) +
            " of its largest element");
  }
  return "weights differ by " + written(most);
}

// Passes `skip` and `divisor` to an optimizer that takes them, or applies them as Step does.
std::string skips(const Alone& alone) {
  AloneOptimizer one(alone);
  one.rank.step(0);
  const std::vector<at::Tensor> before = one.rank.copies();
  one.rank.give_gradients(1, std::nan(""));
  one.rank.updater().update({kKitLr, kKitDecay, alone.number(std::nan("")), alone.number(1)});
  expect_equal(one.rank.all(), before, "after an update with skip 1");
  return "";
}

std::string divides(const Alone& alone) {
  AloneOptimizer plain(alone), divided(alone);
  for (int64_t step = 0; step < 3; ++step) {
    plain.rank.step(step);
    divided.rank.give_gradients(step, 4);
    divided.rank.updater().update({kKitLr, kKitDecay, alone.number(4), alone.number(0)});
  }
  expect_equal(divided.rank.all(), plain.rank.all(), "with gradients times 4 and a divisor of 4");
  return "";
}

std::string leaves_alone(const Alone& alone) {
  AloneOptimizer one(alone);
  one.rank.step(0);
  for (const WholeShape& whole : kWholes) {
    std::map<std::string, at::Tensor> before;
    const auto add = [&](auto& to) {
      for (Shard* shard : one.rank.shards())
        if (shard->name == whole.name) to["weight"] = shard->tensor.detach().clone();
      for (const OptimizerState& state : one.rank.updater().state())
        if (state.shard->name == whole.name)
          for (const StateTensor& tensor : state.tensors) to[tensor.name] = tensor.tensor.clone();
    };
    std::map<std::string, at::Tensor> after;
    add(before);
    one.rank.step(1, whole.name);
    add(after);
    for (const auto& [name, tensor] : before)
      if (!at::equal(after.at(name), tensor))
        found("'" + std::string(whole.name) + "' has no gradient, but its " + name + " changes");
  }
  return "";
}

std::string keeps_dtype(const Alone& alone) {
  for (const bool master : {false, true}) {
    StepConfig config;
    config.master_weights = master;
    AloneOptimizer one(alone, at::kBFloat16, config);
    const std::vector<at::Tensor> before = one.rank.copies();
    for (int64_t step = 0; step < 3; ++step) one.rank.step(step);
    const std::vector<at::Tensor> after = one.rank.all();
    for (size_t i = 0; i < kWholes.size(); ++i) {
      if (after[i].scalar_type() != at::kBFloat16 || !after[i].isfinite().all().item<bool>())
        found(std::string("'") + kWholes[i].name + "' is no longer finite or no longer in bfloat16");
      if (at::equal(after[i], before[i])) found(std::string("'") + kWholes[i].name + "' does not change");
    }
  }
  return "";
}

// Returns the weights after two updates.
std::vector<at::Tensor> updated(const Alone& alone, double lr, double decay, const StepConfig& config = {}) {
  AloneOptimizer one(alone, at::kFloat, config);
  for (int64_t step = 0; step < 2; ++step) {
    one.rank.give_gradients(step);
    one.rank.updater().update({lr, decay, {}, {}});
  }
  std::vector<at::Tensor> weights = one.rank.copies();
  weights.resize(kWholes.size());
  return weights;
}

// Checks that a factor of 2 of a group equals twice the value in update(), for the parameters of the group
// only. Doubling is exact.
void expect_factor(const Alone& alone, const std::string& factor, const ParameterGroup& group,
                   const std::vector<at::Tensor>& scaled) {
  StepConfig config;
  config.groups = {group};
  const std::vector<at::Tensor> plain = updated(alone, kKitLr, kKitDecay),
                                got = updated(alone, kKitLr, kKitDecay, config);
  for (size_t i = 0; i < kWholes.size(); ++i) {
    const std::string name = kWholes[i].name;
    const bool inside = name == "layer.1.weight" || name == "layer.1.norm";
    if (!at::equal(got[i], inside ? scaled[i] : plain[i]))
      found("'" + name + "' has " + factor + (inside ? " 2" : " 1") + ", but differs from an update with " +
            (inside ? "twice the value" : "the same value"));
  }
}

std::string heeds_groups(const Alone& alone) {
  const std::string pattern = "layer.1.weight|norm";
  StepConfig config;
  config.groups = {{pattern, 0.0, 1.0}};
  AloneOptimizer one(alone, at::kFloat, config);
  const std::vector<at::Tensor> before = one.rank.copies();
  one.rank.step(0);
  for (size_t i = 0; i < kWholes.size(); ++i) {
    const std::string name = kWholes[i].name;
    const bool still = name == "layer.1.weight" || name == "layer.1.norm";
    if (at::equal(one.rank.all()[i], before[i]) != still)
      found("'" + name + "' " + (still ? "has lr_mult 0, but changes" : "does not change"));
  }
  expect_factor(alone, "lr_mult", {pattern, 2.0, 1.0}, updated(alone, 2 * kKitLr, kKitDecay));
  expect_factor(alone, "wd_mult", {pattern, 1.0, 2.0}, updated(alone, kKitLr, 2 * kKitDecay));
  return "";
}

std::string decays(const Alone& alone) {
  const std::vector<at::Tensor> without = updated(alone, kKitLr, 0), with = updated(alone, kKitLr, kKitDecay);
  int changed = 0;
  for (size_t i = 0; i < kWholes.size(); ++i) changed += at::equal(with[i], without[i]) ? 0 : 1;
  if (changed == 0) found("weight_decay changes no weight, but the section of every optimizer may set it");
  return "it changes " + std::to_string(changed) + " of " + std::to_string(kWholes.size()) + " parameters";
}

// Checks that update() does not communicate if it can be undone: other ranks do not repeat the update.
std::string communicates_nothing(const Make& make, int ranks) {
  if (!make()->can_undo()) throw NotRun{"can_undo() is false: pp_post_validation is refused"};
  std::atomic<int64_t> waited = 0;
  run_ranks(ranks, check_device(), [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(std::vector<Axis>{{"dp_shard", ranks}}, rendezvous, "kit: optimizer");
    RankOptimizer mine(make, mesh, at::TensorOptions(at::kFloat).device(mesh.device()));
    const int64_t before = Watch::waited_of_thread();
    mine.step(0);
    waited += Watch::waited_of_thread() - before;
  });
  if (waited > 0)
    found("can_undo() is true, but update() communicates: other ranks do not take part in a repeated update");
  return "";
}

std::string takes_back(const Alone& alone) {
  if (!alone.make()->can_undo()) throw NotRun{"can_undo() is false: pp_post_validation is refused"};
  AloneOptimizer one(alone), never(alone);
  one.rank.step(0);
  never.rank.step(0);
  one.rank.updater().keep(/*state=*/true, /*gradients=*/false);
  one.rank.step(1);
  one.rank.updater().undo();
  expect_equal(one.rank.all(), never.rank.all(), "after an undone update");
  one.rank.step(2);
  never.rank.step(2);
  expect_equal(one.rank.all(), never.rank.all(), "after an undone update and another update");
  return "";
}

std::string starts_on_meta(const Alone& alone) {
  AloneOptimizer real(alone), dry(alone, at::TensorOptions(at::kFloat).device(at::kMeta));
  const std::vector<at::Tensor> want = real.rank.all(), got = dry.rank.all();
  if (got.size() != want.size()) found("start() on meta creates other state");
  for (size_t i = 0; i < got.size(); ++i)
    if (!got[i].is_meta() || got[i].sizes() != want[i].sizes() || got[i].dtype() != want[i].dtype())
      found("a state tensor of meta weights is not on meta, or has another shape or dtype");
  return "";
}

void check_optimizer(const OfferedSchema& offered, const CheckedPlugin& plugin, Attempts& attempt) {
  const auto& optimizer = static_cast<const OfferedOptimizer&>(offered);
  run_schema_kits("optimizer", optimizer, attempt);
  const Node values = optimizer.resolve(fields_of(offered, plugin)).values;
  const Make make = [&optimizer, values] { return optimizer.make(values); };
  const std::string thing = "optimizer '" + optimizer.name + "'";
  const auto kit = [&](const std::string& rule, std::string (*run)(const Alone&)) {
    attempt.training(thing + ": " + rule, [&] {
      std::string out;
      run_alone(check_device(), [&](Rendezvous& rendezvous) { out = run({make, rendezvous}); });
      return out;
    });
  };
  kit("start(): state is on the device of the weights, meta in a dry world", starts_on_meta);
  kit("state(): a run continues bitwise equally from copied values", continues);
  kit("update(): a shard with an undefined gradient is unchanged", leaves_alone);
  kit("update(): nothing changes if skip is 1", skips);
  kit("update(): gradients are divided by the divisor", divides);
  kit("update(): a weight keeps its dtype, with and without master copies", keeps_dtype);
  kit("start(): lr_mult and wd_mult of a group", heeds_groups);
  kit("update(): weight_decay", decays);
  kit("can_undo(): copies of weights and state() undo an update", takes_back);
  for (const int ranks : plugin.options.ranks)
    if (ranks > 1)
      attempt.training(
          thing + " on " + std::to_string(ranks) + " ranks: can_undo(): update() does not communicate",
          [&] { return communicates_nothing(make, ranks); });
  for (const int ranks : plugin.options.ranks)
    if (ranks > 1 || check_device() != nullptr)  // one rank of a device is compared with the CPU
      attempt.training(thing + " on " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
                           ": update(): does not depend on the split",
                       [&] { return is_independent_of_the_split(make, ranks); });
}

const KindKits kOptimizer(OfferedOptimizer::kKind, check_optimizer);

}  // namespace
}  // namespace heddle::kits
