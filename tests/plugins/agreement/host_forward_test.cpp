// Models whose own forward runs the units: gradients equal plain autograd under every strategy.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lib/testing/whole_tensors.h"
#include "plugins/megatron_runs.h"
#include "tests/toy_unit.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

constexpr size_t kRoot = 0, kA = 1, kB = 2, kC = 3, kD = 4;
constexpr int64_t kWidth = 5;

at::Tensor wave(std::vector<int64_t> sizes, double start) {
  int64_t elements = 1;
  for (const int64_t size : sizes) elements *= size;
  return ((at::arange(elements, at::kFloat) * 1.7 + start).sin() * 0.4).view(sizes);
}

struct Shape {
  bool frozen_b = false;  // the unit b is frozen
  bool tied = false;      // d shares the weight of a
  bool scalar = false;    // the root has a parameter without dims
};

Units host_units(const Shape& shape) {
  const auto never = [](ToyUnit&, Tensors, const Batch&) -> Tensors {
    throw std::logic_error("a host runs the units");
  };
  const auto parameter = [](const std::string& name, std::vector<int64_t> sizes) {
    const auto start = static_cast<double>(name[0] * 7 % 97);
    return ToyUnit::Parameter{name, wave(std::move(sizes), start).set_requires_grad(true), {}};
  };
  Units units;
  std::vector<ToyUnit::Parameter> root = {parameter("root.in", {kWidth}),
                                          parameter("root.out", {kWidth, kWidth})};
  if (shape.scalar) root.push_back(parameter("root.scalar", {}));
  units.push_back(std::make_unique<ToyUnit>("root", root, never));
  for (const std::string name : {"a", "b", "c", "d"}) {
    ToyUnit::Parameter weight = parameter(name + ".weight", {kWidth, kWidth});
    if (shape.tied && name == "d") weight = static_cast<ToyUnit&>(*units[kA]).own[0];
    if (shape.frozen_b && name == "b") weight.tensor.set_requires_grad(false);
    units.push_back(std::make_unique<ToyUnit>(name, std::vector{weight}, never));
  }
  return units;
}

// A model of the host. Without a stage it runs in plain autograd.
class HostModel {
 public:
  HostModel(std::vector<ToyUnit*> units, ParallelStage* stage, int rank)
      : stage_(stage), units_(std::move(units)), rank_(rank) {}

  int rank() const { return rank_; }
  ParallelStage* stage() const { return stage_; }
  at::Tensor weight(size_t unit, size_t index = 0) const { return units_[unit]->own[index].tensor; }

  at::Tensor run(size_t unit, const at::Tensor& x) {
    before(unit);
    const at::Tensor y = (at::linear(x, weight(unit)) + x).tanh();
    after(unit, y);
    return y;
  }
  void before(size_t unit) {
    if (stage_ != nullptr) stage_->before(unit);
  }
  void after(size_t unit, const at::Tensor& y) {
    if (stage_ != nullptr) stage_->after(unit, y.requires_grad() ? Tensors{y} : Tensors{});
  }

  // Runs the root around `body` and returns the loss. Microbatches differ between ranks.
  using Body = std::function<at::Tensor(HostModel&, at::Tensor)>;
  at::Tensor forward(const Body& body) {
    if (stage_ != nullptr) stage_->begin_forward(Batch());
    at::Tensor loss;
    try {
      before(kRoot);
      at::Tensor x = wave({3, kWidth}, 11.0 * rank_ + 3.0 * ++forwards_) * weight(kRoot);
      if (units_[kRoot]->own.size() > 2) x = x * weight(kRoot, 2);
      x = body(*this, x);
      loss = at::linear(x, weight(kRoot, 1)).tanh().square().sum();
      after(kRoot, loss);
    } catch (...) {
      if (stage_ != nullptr) stage_->abandon_forward();
      throw;
    }
    if (stage_ != nullptr) stage_->end_forward();
    return loss;
  }
  void backward(const at::Tensor& loss, bool last = true) {
    if (stage_ != nullptr && last) stage_->expect_last_backward();
    torch::autograd::backward({loss}, {});
  }

 private:
  ParallelStage* stage_;
  std::vector<ToyUnit*> units_;
  int rank_, forwards_ = 0;
};

std::vector<ToyUnit*> pointers(const Units& units) {
  std::vector<ToyUnit*> out;
  for (const auto& unit : units) out.push_back(static_cast<ToyUnit*>(unit.get()));
  return out;
}

using Script = std::function<void(HostModel&)>;  // forwards and backwards of a step
using Gradients = std::map<std::string, at::Tensor>;

Gradients plain(const Script& script, const Shape& shape, int ranks) {
  const Units units = host_units(shape);
  for (int rank = 0; rank < ranks; ++rank) {
    HostModel model(pointers(units), nullptr, rank);
    script(model);
  }
  Gradients out;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      if (slot.tensor->grad().defined()) out.emplace(slot.name, slot.tensor->grad());
  return out;
}

// Runs steps in sequence with the same parameters.
std::vector<Gradients> hosted(Training run, const std::vector<Script>& steps, const Shape& shape) {
  std::vector<kits::WholeTensors> gathered(steps.size());
  std::vector<std::vector<ToyUnit*>> seen(8);
  run.make_units = [&](int rank) {
    Units units = host_units(shape);
    seen[static_cast<size_t>(rank)] = pointers(units);
    return units;
  };
  on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
    const int rank = mesh.rank("world");
    for (size_t step = 0; step < steps.size(); ++step) {
      HostModel model(seen[static_cast<size_t>(rank)], stages.front().get(), rank);
      steps[step](model);
      stages.front()->finish_gradients();
      for (const Shard& shard : stages.front()->owned()) {
        if (shard.tensor.grad().defined()) gathered[step].add(mesh, shard, shard.tensor.grad());
        shard.tensor.mutable_grad().reset();
      }
      stages.front()->parameters_changed(ParametersChange::updated);
    }
  });
  std::vector<Gradients> out;
  for (kits::WholeTensors& all : gathered) out.push_back(all.take("the gradient of"));
  return out;
}

std::map<std::string, Training> strategies() {
  std::map<std::string, Training> out;
  out["single"] = toy("single", {});
  out["ddp"] = toy("ddp", {{"pp", 1}, {"dp", 2}, {"cp", 1}, {"tp", 1}});
  out["fsdp2"] = toy("fsdp2", shards(2));
  out["fsdp2_whole"] = toy("fsdp2", shards(2), "reshard_after_forward: false\n");
  out["fsdp2_replicas"] = toy("fsdp2", shards(2, 2));
  out["fsdp2_ahead"] = toy("fsdp2", shards(2),
                           "enable_fsdp2_prefetch: true\nfsdp2_forward_prefetch_depth: 2\n"
                           "fsdp2_backward_prefetch_depth: 2\nreshard_after_forward: true\n");
  out["megatron_fsdp"] = toy_like(mfsdp(2, zero(3)));
  out["megatron_fsdp_zero2"] = toy_like(mfsdp(2, zero(2)));
  out["megatron"] = toy_like(megatron(2, kFlat));
  return out;
}

int world_of(const Training& run) {
  int ranks = 1;
  for (const Axis& axis : run.axes) ranks *= axis.size;
  return ranks;
}

void expect_plain(const std::vector<Script>& steps, const Shape& shape = {},
                  const std::vector<std::string>& without = {}) {
  for (const auto& [name, run] : strategies()) {
    if (std::find(without.begin(), without.end(), name) != without.end()) continue;
    SCOPED_TRACE(name);
    const std::vector<Gradients> got = hosted(run, steps, shape);
    for (size_t step = 0; step < steps.size(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      expect_same(got[step], plain(steps[step], shape, world_of(run)));
    }
  }
}

Script one(const HostModel::Body& body) {
  return [body](HostModel& model) { model.backward(model.forward(body)); };
}

at::Tensor in_order(HostModel& model, at::Tensor x) {
  for (const size_t unit : {kA, kB, kC, kD}) x = model.run(unit, x);
  return x;
}

at::Tensor without_b(HostModel& model, at::Tensor x) {
  for (const size_t unit : {kA, kC, kD}) x = model.run(unit, x);
  return x;
}

TEST(HostForward, RunsUnitsInTheOrderOfTheModel) {
  expect_plain({one(in_order), one(in_order)});
}

TEST(HostForward, FindsAnOrderThatDiffersFromTheList) {
  const auto reversed = [](HostModel& model, at::Tensor x) {
    for (const size_t unit : {kD, kC, kA, kB}) x = model.run(unit, x);
    return x;
  };
  expect_plain({one(reversed), one(reversed), one(reversed)});
}

TEST(HostForward, SkipsAUnit) {
  expect_plain({one(in_order), one(without_b), one(in_order)});
  expect_plain({one(without_b), one(in_order), one(without_b)});
}

// Each rank skips another unit, also in the first forward.
TEST(HostForward, SkipsAUnitOnOneRank) {
  const auto some = [](HostModel& model, at::Tensor x) {
    if (model.rank() == 0) x = model.run(kA, x);
    x = model.run(kB, x);
    if (model.rank() == 1) x = model.run(kC, x);
    return model.run(kD, x);
  };
  const auto others = [](HostModel& model, at::Tensor x) {
    if (model.rank() == 1) x = model.run(kA, x);
    if (model.rank() == 0) x = model.run(kB, x);
    return model.run(kC, x);
  };
  expect_plain({one(some), one(others), one(some), one(in_order)});
  expect_plain({one(in_order), one(some), one(others)});
}

TEST(HostForward, RunsAUnitAroundUnitsThatARankSkips) {
  const auto nested = [](HostModel& model, at::Tensor x) {
    model.before(kA);
    at::Tensor y = at::linear(x, model.weight(kA));
    y = model.run(kC, model.run(kB, y)) + at::linear(y, model.weight(kA));
    model.after(kA, y);
    return model.run(kD, y);
  };
  const auto on_one = [nested](HostModel& model, at::Tensor x) {
    return model.rank() == 0 ? nested(model, x) : model.run(kD, x);
  };
  expect_plain({one(nested), one(nested), one(on_one)});
  expect_plain({one(on_one), one(nested), one(on_one)});
}

TEST(HostForward, RunsAUnitTwice) {
  const auto twice = [](HostModel& model, at::Tensor x) {
    for (const size_t unit : {kA, kB, kA, kC, kA}) x = model.run(unit, x);
    return x;
  };
  const auto once = [](HostModel& model, at::Tensor x) {
    for (const size_t unit : {kA, kB, kC}) x = model.run(unit, x);
    return x;
  };
  expect_plain({one(twice), one(twice), one(once)});
}

// T5 layers pass on the position bias of the first layer in the same way.
TEST(HostForward, PassesATensorThroughUnits) {
  const auto handed_on = [](HostModel& model, at::Tensor x) {
    model.before(kA);
    const at::Tensor bias = at::linear(x, model.weight(kA)).tanh();
    x = bias + x;
    if (model.stage() != nullptr) model.stage()->after(kA, {x, bias});
    for (const size_t unit : {kB, kC, kD}) {
      model.before(unit);
      x = (at::linear(x, model.weight(unit)) + bias).tanh();
      if (model.stage() != nullptr) model.stage()->after(unit, {x, bias});
    }
    return x;
  };
  expect_plain({one(handed_on), one(handed_on), one(in_order)});
}

// T5 with checkpointing makes the position bias a leaf.
TEST(HostForward, PassesALeafThroughUnits) {
  const auto handed_on = [](HostModel& model, at::Tensor x) {
    const at::Tensor bias = wave({3, kWidth}, 2.0).set_requires_grad(true);
    for (const size_t unit : {kA, kB, kC, kD}) {
      model.before(unit);
      x = (at::linear(x + bias, model.weight(unit)) + x).tanh();
      if (model.stage() != nullptr) model.stage()->after(unit, {x, bias});
    }
    return x;
  };
  expect_plain({one(handed_on), one(handed_on), one(in_order)});
}

// The operation replaces the node of the view that the unit has returned.
TEST(HostForward, RunsAUnitWhoseOutputChangesInPlace) {
  const auto changed = [](HostModel& model, at::Tensor x) {
    for (const size_t unit : {kA, kB, kC, kD}) {
      model.before(unit);
      x = (at::linear(x, model.weight(unit)) + x).view({3, kWidth});
      model.after(unit, x);
      x.mul_(0.5);
    }
    return x.tanh();
  };
  expect_plain({one(changed), one(changed), one(in_order)});
}

TEST(HostForward, RunsTiedUnits) {
  Shape shape;
  shape.tied = true;
  expect_plain({one(in_order), one(in_order), one(without_b)}, shape);
}

TEST(HostForward, RunsTwoForwardsBeforeOneBackward) {
  const auto two = [](HostModel& model) {
    const at::Tensor first = model.forward(in_order);
    model.backward(first + model.forward(in_order));
  };
  const auto one_lacks_b = [](HostModel& model) {
    const at::Tensor first = model.forward(in_order);
    model.backward(first + model.forward(model.rank() == 0 ? without_b : in_order));
  };
  expect_plain({two, two, one_lacks_b, one(in_order)});
}

// The ranks' backwards come to the second forward after different units, or not at all.
TEST(HostForward, RunsTwoForwardsBeforeOneBackwardWithOtherUnitsOnEachRank) {
  const auto only = [](size_t unit) -> HostModel::Body {
    return [unit](HostModel& model, at::Tensor x) { return model.run(unit, x); };
  };
  const auto one_runs_little = [only](HostModel& model) {
    const bool all = model.rank() == 1;
    const at::Tensor first = model.forward(all ? HostModel::Body(in_order) : only(kA));
    model.backward(first + model.forward(all ? HostModel::Body(in_order) : only(kD)));
  };
  const auto one_has_no_second = [](HostModel& model) {
    const at::Tensor first = model.forward(in_order), second = model.forward(in_order);
    model.backward(model.rank() == 0 ? first : first + second);
  };
  const auto one_has_no_first = [](HostModel& model) {
    const at::Tensor first = model.forward(in_order), second = model.forward(in_order);
    model.backward(model.rank() == 0 ? second : first + second);
  };
  expect_plain({one(in_order), one_runs_little, one_has_no_second, one_has_no_first, one(in_order)});
}

TEST(HostForward, AccumulatesMicrobatches) {
  const auto three = [](HostModel& model) {
    for (int i = 0; i < 3; ++i)
      model.backward(model.forward(i == 1 && model.rank() == 1 ? without_b : in_order), i == 2);
  };
  expect_plain({three, three});
}

TEST(HostForward, RunsForwardsWithSequentialBackwards) {
  const auto script = [](HostModel& model) {
    const at::Tensor first = model.forward(in_order), second = model.forward(in_order);
    model.backward(first, false);
    model.backward(second);
  };
  expect_plain({script, script});
}

TEST(HostForward, DetachesAUnit) {
  const auto detached = [](HostModel& model, at::Tensor x) {
    x = model.run(kB, model.run(kA, x)).detach();
    return model.run(kD, model.run(kC, x));
  };
  expect_plain({one(detached), one(detached), one(in_order)});
}

TEST(HostForward, RunsAFrozenUnit) {
  Shape shape;
  shape.frozen_b = true;
  expect_plain({one(in_order), one(in_order)}, shape);
}

TEST(HostForward, EvaluatesBetweenForwardAndBackward) {
  const auto script = [](HostModel& model) {
    const at::Tensor loss = model.forward(in_order);
    {
      const at::NoGradGuard no_gradients;
      model.forward(without_b);
    }
    model.backward(loss);
  };
  expect_plain({script, script});
}

TEST(HostForward, FindsTheOrderInAnEvaluation) {
  const auto script = [](HostModel& model) {
    {
      const at::NoGradGuard no_gradients;
      model.forward(model.rank() == 0 ? without_b : in_order);
    }
    model.backward(model.forward(in_order));
  };
  expect_plain({script, one(in_order)});
}

TEST(HostForward, KeepsAParameterWithoutDims) {
  Shape shape;
  shape.scalar = true;
  const auto without_root = [](HostModel& model, at::Tensor x) { return model.run(kA, x.detach()); };
  expect_plain({one(in_order), one(without_root), one(in_order)}, shape,
               {"megatron_fsdp", "megatron_fsdp_zero2"});
}

// Reentrant checkpointing as in torch.utils.checkpoint: the forward runs without gradients, and the backward
// runs it again, with a nested backward.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, HostModel* model,
                            HostModel::Body body) {
    context->save_for_backward({x});
    context->saved_data["model"] = reinterpret_cast<int64_t>(model);
    context->saved_data["body"] = reinterpret_cast<int64_t>(new HostModel::Body(body));  // outlives the node
    const at::NoGradGuard no_gradients;
    return body(*model, x.detach());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* model = reinterpret_cast<HostModel*>(context->saved_data["model"].toInt());
    const std::unique_ptr<HostModel::Body> body(
        reinterpret_cast<HostModel::Body*>(context->saved_data["body"].toInt()));
    const at::AutoGradMode with_gradients(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().set_requires_grad(true);
    const at::Tensor y = (*body)(*model, x);
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), at::Tensor(), at::Tensor()};
  }
};

TEST(HostForward, RecomputesUnitsInANestedBackward) {
  const auto each = [](HostModel& model, at::Tensor x) {
    for (const size_t unit : {kA, kB, kC, kD})
      x = Reentrant::apply(x, &model,
                           HostModel::Body([unit](HostModel& m, at::Tensor y) { return m.run(unit, y); }));
    return x;
  };
  const auto several = [](HostModel& model, at::Tensor x) {
    x = Reentrant::apply(x, &model,
                         HostModel::Body([](HostModel& m, at::Tensor y) { return m.run(kB, m.run(kA, y)); }));
    x = model.run(kC, x);
    return Reentrant::apply(x, &model,
                            HostModel::Body([](HostModel& m, at::Tensor y) { return m.run(kD, y); }));
  };
  expect_plain({one(each), one(each)});
  expect_plain({one(several), one(several)});
}

// Non-reentrant checkpointing: the backward of a node runs the forward again to get its saved tensors.
struct ForSaved : torch::autograd::Function<ForSaved> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, HostModel* model, int64_t unit) {
    context->save_for_backward({x, weight});
    context->saved_data["model"] = reinterpret_cast<int64_t>(model);
    context->saved_data["unit"] = unit;
    return (at::linear(x, weight) + x).tanh();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* model = reinterpret_cast<HostModel*>(context->saved_data["model"].toInt());
    const auto unit = static_cast<size_t>(context->saved_data["unit"].toInt());
    const auto saved = context->get_saved_variables();
    const at::AutoGradMode with_gradients(true);
    const at::Tensor y = model->run(unit, saved[0].detach());
    const at::NoGradGuard no_gradients;
    const at::Tensor inner = gradients[0] * (1 - y.detach().square());
    return {inner.matmul(saved[1]) + inner, inner.t().matmul(saved[0]), at::Tensor(), at::Tensor()};
  }
};

TEST(HostForward, RecomputesUnitsForSavedTensors) {
  const auto body = [](HostModel& model, at::Tensor x) {
    for (const size_t unit : {kA, kB, kC}) {
      model.before(unit);
      x = ForSaved::apply(x, model.weight(unit), &model, static_cast<int64_t>(unit));
      model.after(unit, x);
    }
    return model.run(kD, x);
  };
  expect_plain({one(body), one(body)});
}

// Returns the error of each rank.
std::vector<std::string> refusals(Training run, const Script& script, const Shape& shape = {}) {
  std::vector<std::string> out(2);
  std::vector<std::vector<ToyUnit*>> seen(2);
  run.make_units = [&](int rank) {
    Units units = host_units(shape);
    seen[static_cast<size_t>(rank)] = pointers(units);
    return units;
  };
  on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
    const auto rank = static_cast<size_t>(mesh.rank("world"));
    HostModel model(seen[rank], stages.front().get(), static_cast<int>(rank));
    out[rank] = error_of([&] { script(model); });
  });
  return out;
}

TEST(HostForward, NamesBothUnitsWhenTheOrderChanges) {
  const auto script = [](HostModel& model) {
    model.backward(model.forward(in_order), false);
    model.forward([](HostModel& m, at::Tensor x) { return m.run(kA, m.run(kC, x)); });
  };
  for (const std::string& text : refusals(toy("fsdp2", shards(2)), script)) {
    EXPECT_THAT(text, HasSubstr("error[input] fsdp2: the unit 'a' runs after 'c'"));
    EXPECT_THAT(text, HasSubstr("hint: run units in the order of the first forward"));
  }
}

TEST(HostForward, ContinuesAfterAForwardThatThrew) {
  const auto script = [](HostModel& model) {
    EXPECT_THROW(model.forward([](HostModel& m, at::Tensor x) -> at::Tensor {
      m.before(kA);
      throw std::runtime_error("no more data");
    }),
                 std::runtime_error);
    model.backward(model.forward(in_order));
  };
  const auto later = [](HostModel& model) {
    EXPECT_THROW(model.forward([](HostModel& m, at::Tensor x) -> at::Tensor {
      m.run(kB, m.run(kA, x));
      throw std::runtime_error("no more data");
    }),
                 std::runtime_error);
    model.backward(model.forward(in_order));
  };
  const Shape shape;
  for (const std::string name : {"single", "ddp", "fsdp2", "megatron_fsdp"}) {
    SCOPED_TRACE(name);
    const Training run = strategies().at(name);
    for (const Gradients& got : hosted(run, {script, later}, shape)) {
      const auto second = [](HostModel& model) {
        if (model.stage() == nullptr) {
          const at::NoGradGuard no_gradients;
          model.forward(in_order);
        }
        model.backward(model.forward(in_order));
      };
      expect_same(got, plain(second, shape, world_of(run)));
    }
  }
}

TEST(HostForward, RefusesABackwardAfterTheLastOne) {
  for (const std::string name : {"fsdp2", "megatron_fsdp", "megatron"}) {
    SCOPED_TRACE(name);
    const auto script = [](HostModel& model) {
      at::Tensor x;
      const at::Tensor loss = model.forward([&](HostModel& m, at::Tensor y) {
        x = y;
        return in_order(m, y);
      });
      model.stage()->expect_last_backward();
      torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true);
      torch::autograd::backward({loss}, {});
    };
    for (const std::string& text : refusals(strategies().at(name), script))
      EXPECT_THAT(text, HasSubstr("a backward follows the one that was announced as the last of the step"));
  }
}

TEST(HostForward, ReportsDtypesToTheHost) {
  Training run = toy("fsdp2", shards(2),
                     "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32, output_dtype: float32, "
                     "cast_forward_inputs: true}\nautocast_dtype: float16\n");
  run.make_units = [](int) { return host_units({}); };
  on_ranks(run, [](Stages& stages, const DeviceMesh&) {
    const UnitPrecision dtypes = stages.front()->unit_precision(kA);
    EXPECT_EQ(dtypes.inputs, at::kBFloat16);
    EXPECT_EQ(dtypes.outputs, at::kFloat);
    EXPECT_EQ(stages.front()->autocast(), at::kHalf);
  });
}

}  // namespace
}  // namespace heddle::tests
