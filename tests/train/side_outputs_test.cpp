// Side outputs of modules: exact values, gradients, buffer updates after the step, and misuse.
#include "heddle/model/side_outputs.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/parallel/single.h"
#include "heddle/model/module_unit.h"
#include "heddle/parallel/build.h"
#include "heddle/train/step.h"
#include "heddle/transport/threads.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

constexpr int64_t kWords = 7;

enum class Way { none, side, in_the_loss };

// Logits are rows of one table. The auxiliary loss is the sum of squared logits.
class Table : public Module, public AfterUpdate {
 public:
  explicit Table(Way way) : way_(way) {
    table_ = at::empty({kWords, kWords}, at::device(at::kMeta).dtype(at::kFloat)).requires_grad_();
    add_slot("table", table_, {Init::Kind::normal, 0.5});
    if (way_ != Way::side) return;
    add_side_output(squares_);
    add_side_output(mean_);
    add_side_output(most_);
  }
  std::string_view kind() const override { return "table"; }
  void after_update(const Updated& updated, const DeviceMesh&) override {
    ++updates;
    if (way_ != Way::side) return;
    bias.add_(updated.values.find("table/mean").sub(1).sign());
    skipped = updated.skipped.item<float>();
  }
  const Metric& undeclared() const { return undeclared_; }

  int updates = 0;
  float skipped = -1;
  at::Tensor bias = at::zeros({1}, at::kDouble);

 protected:
  at::Tensor forward(at::Tensor tokens, const Batch& batch) override {
    at::Tensor logits = at::embedding(table_, tokens).flatten(0, 1);
    const at::Tensor squares = logits.square().sum();
    if (way_ == Way::side) {
      logits = squares_.add(logits, squares, batch);
      mean_.add(at::ones({1}), batch, 2);
      mean_.add(at::ones({1}).mul_(4), batch, 1);
      most_.add(at::arange(3), batch);
    }
    const at::Tensor loss = at::nll_loss(at::log_softmax(logits, 1), batch.labels.flatten(), {},
                                         at::Reduction::Sum, Batch::kIgnore);
    return way_ == Way::in_the_loss ? loss + squares : loss;
  }

 private:
  Way way_;
  at::Tensor table_;
  AuxiliaryLoss squares_{"table/squares"};
  Metric mean_{"table/mean", Combine::mean}, most_{"table/most", Combine::max, {"dp_cp"}, 3, Shown::file},
      undeclared_{"table/undeclared", Combine::sum};
};

Batch batch_with_labels(int64_t samples) {
  Batch batch;
  batch.tokens = at::arange(samples * 5).view({samples, 5}).remainder(kWords);
  batch.labels = (batch.tokens * 3 + 1).remainder(kWords);
  batch.labels[0][0].fill_(Batch::kIgnore);
  return batch;
}

void with_table(Way way, const std::function<void(Step&, Stages&, Table&, const DeviceMesh&)>& body) {
  ThreadWorld::run(1, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(std::vector<Axis>{{"pp", 1}, {"tp", 1}}, rendezvous, "");
    Plan plan;
    plan.strategy = parallel::make_single();
    auto module = std::make_unique<Table>(way);
    Table& table = *module;
    Units units;
    units.push_back(std::make_unique<ModuleUnit>("table", "", std::move(module)));
    Stages stages = parallel::build(std::move(units), plan, mesh, {}, 42);
    Step step(stages, mesh, {});
    body(step, stages, table, mesh);
  });
}

std::vector<StepReport> three_steps(Way way) {
  std::vector<StepReport> out;
  with_table(way, [&](Step& step, Stages&, Table&, const DeviceMesh&) {
    for (int i = 0; i < 3; ++i)
      out.push_back(step.run(std::vector<Batch>{batch_with_labels(2), batch_with_labels(3)}, 0.05, 0.1));
  });
  return out;
}

TEST(SideOutput, HasTheGradientOfAnAddedLoss) {
  const auto aside = three_steps(Way::side), within = three_steps(Way::in_the_loss),
             none = three_steps(Way::none);
  for (size_t i = 0; i < aside.size(); ++i) {
    EXPECT_NEAR(aside[i].grad_norm.item<double>(), within[i].grad_norm.item<double>(), 1e-6);
    const double side = aside[i].side_values.find("table/squares").item<double>();
    EXPECT_NEAR(aside[i].loss.item<double>() + side, within[i].loss.item<double>(), 1e-5);
    EXPECT_GT(side, 0.1);
  }
  EXPECT_EQ(aside[0].loss.item<double>(), none[0].loss.item<double>());
  EXPECT_GT(std::abs(aside[0].grad_norm.item<double>() - none[0].grad_norm.item<double>()), 0.1);
  EXPECT_FALSE(none[0].side_values.layout);
}

TEST(SideOutput, MetricsAreSumsMeansAndMaxima) {
  const SideValues values = three_steps(Way::side)[1].side_values;
  EXPECT_EQ(values.find("table/mean").item<double>(), 2.0);
  const at::Tensor most = values.find("table/most");
  EXPECT_EQ(most.size(0), 3);
  EXPECT_EQ(most[2].item<double>(), 2.0);
  EXPECT_FALSE(values.find("table/nothing").defined());
}

TEST(SideOutput, ModulesChangeTheirBuffersAfterEachUpdateAndNotAfterAnEvaluation) {
  with_table(Way::side, [](Step& step, Stages& stages, Table& table, const DeviceMesh&) {
    const std::vector<Batch> batches = {batch_with_labels(2)};
    step.run(batches, 0.05, 0.1);
    const StepReport report = step.evaluate(batches);
    EXPECT_EQ(report.side_values.find("table/mean").item<double>(), 2.0);
    EXPECT_EQ(table.updates, 1);
    EXPECT_EQ(table.bias.item<double>(), 1.0);
    EXPECT_EQ(table.skipped, 0);
    stages[0]->owned()[0].tensor.detach()[0][0] = NAN;
    step.run(batches, 0.05, 0.1);
    EXPECT_EQ(table.skipped, 1);
  });
}

TEST(SideOutput, MisuseIsRefusedByName) {
  EXPECT_EQ(
      tests::thrown_by([] { Metric("load", Combine::sum); }),
      "error[input] side output: 'load' is not a name of a loss or a metric\n  hint: write GROUP/NAME of "
      "letters, digits, '_', '-' and '.', for instance router/load, or NAME_loss of a part of the loss");
  EXPECT_NE(tests::thrown_by([] { Metric("_loss", Combine::sum); }), "");
  EXPECT_EQ(tests::thrown_by([] { Metric("soft_loss", Combine::sum); }), "");
  EXPECT_EQ(tests::thrown_by([] { Metric("router/load", Combine::sum, {}, 0); }),
            "error[input] side output 'router/load': a size of 0\n  hint: give it one element or more");
  auto layout = std::make_shared<SideLayout>();
  Metric known("a/known", Combine::sum, {"dp_cp"}, 2), other("a/other", Combine::sum);
  layout->add(known);
  SideOutputs all(layout, at::kCPU);
  all.begin({});
  Batch batch;
  batch.side_outputs = &all;
  EXPECT_EQ(
      tests::thrown_by([&] { known.add(at::ones({3}), batch); }),
      "error[input] side output 'a/known': a value of 3 elements, and 2 are declared\n  hint: declare the "
      "size of the value");
  EXPECT_EQ(tests::thrown_by([&] { other.add(at::ones({1}), batch); }),
            "error[input] side output 'a/other': the run was built without it\n  hint: declare it: "
            "Module::add_side_output in the constructor, or IParallelizer::side_outputs");
  const AuxiliaryLoss loss("a/loss");
  const at::Tensor x = at::ones({2}).requires_grad_();
  EXPECT_EQ(
      tests::thrown_by([&] { loss.add(x, x * 2, {}); }),
      "error[input] auxiliary loss 'a/loss': it is not a floating tensor of one element\n  hint: add this "
      "rank's part of the microbatch's loss, for instance a sum");
  EXPECT_EQ(tests::thrown_by([&] { loss.add(x, x.sum(), {}); }),
            "error[input] auxiliary loss 'a/loss': nothing collects it, so its gradient would be lost\n  "
            "hint: train "
            "with heddle::Step, or set Batch::side_outputs in a loop of your own");
}

// Adds per-rank values or equal values to its metrics.
class Counter : public Module {
 public:
  explicit Counter(std::vector<std::string> axes)
      : table_(at::full({kWords, kWords}, 0.1)),
        sum_("counter/sum", Combine::sum, axes),
        mean_("counter/mean", Combine::mean, axes),
        most_("counter/most", Combine::max, axes) {
    table_.set_requires_grad(true);
    add_slot("table", table_, {});
    for (SideOutput* each : std::vector<SideOutput*>{&sum_, &mean_, &most_}) add_side_output(*each);
  }
  std::string_view kind() const override { return "counter"; }
  double sum = 0, mean = 0, most = 0;

 protected:
  at::Tensor forward(at::Tensor tokens, const Batch& batch) override {
    sum_.add(at::full({1}, sum), batch);
    mean_.add(at::full({1}, mean), batch, 2);
    most_.add(at::full({1}, most), batch);
    return at::nll_loss(at::log_softmax(table_.index_select(0, tokens.flatten()), 1), batch.labels.flatten(),
                        {}, at::Reduction::Sum, Batch::kIgnore);
  }

 private:
  at::Tensor table_;
  Metric sum_, mean_, most_;
};

// Returns the error of two ranks along `dp_shard` with the values of `set`, or "".
std::string said_of_counter(const std::vector<std::string>& axes,
                            const std::function<void(Counter&, int)>& set) {
  std::string out;
  ThreadWorld::run(2, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh =
        mesh::build(std::vector<Axis>{{"pp", 1}, {"dp_shard", 2}, {"cp", 1}, {"tp", 1}}, rendezvous, "");
    Plan plan;
    plan.strategy = parallel::make_single();
    auto module = std::make_unique<Counter>(axes);
    set(*module, rendezvous.rank());
    Units units;
    units.push_back(std::make_unique<ModuleUnit>("counter", "", std::move(module)));
    Stages stages = parallel::build(std::move(units), plan, mesh, {}, 42);
    Step step(stages, mesh, {});
    const std::string said =
        tests::thrown_by([&] { step.run(std::vector<Batch>{batch_with_labels(2)}, 0.05, 0.1); });
    if (rendezvous.rank() == 1) out = said;
  });
  return out;
}

TEST(SideOutput, RefusesARanksValueThatDiffers) {
  const auto apart = [](const std::string& name) {
    return "error[plugin_failed] side output 'counter/" + name +
           "': ranks along dp_shard added different values, and by its axes they have the same one, which "
           "counts "
           "once\n  hint: name in its axes those along which ranks hold different parts, for instance dp_cp";
  };
  EXPECT_EQ(said_of_counter({}, [](Counter& one, int rank) { one.sum = 3 + rank; }), apart("sum"));
  EXPECT_EQ(said_of_counter({}, [](Counter& one, int rank) { one.mean = rank; }), apart("mean"));
  EXPECT_EQ(said_of_counter({}, [](Counter& one, int rank) { one.sum = 3 + 1e-7 * rank, one.most = rank; }),
            "");
  EXPECT_EQ(said_of_counter({"dp_cp"}, [](Counter& one, int rank) { one.sum = 3 + rank; }), "");
}

}  // namespace
}  // namespace heddle
