// Runs schedule actions on stages that record their calls.
#include "lib/train/runner.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/transport/threads.h"
#include "tests/forwards_first.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::thrown_by;
using train::Runner;

// Multiplies its input, or the tokens, by one parameter. The last stage sums the result.
class Factor : public ParallelStage {
 public:
  Factor(std::vector<std::string>& events, double value, bool last)
      : events_(events), last_(last), weight(at::full({1}, value, at::kDouble).set_requires_grad(true)) {}
  Tensors forward(Tensors inputs, const Batch& batch) override {
    events_.push_back("forward of " + std::to_string(batch.tokens.size(0)));
    const at::Tensor x = inputs.empty() ? batch.tokens.to(at::kDouble) : inputs[0];
    if (!last_) return {x * weight};
    return returns_nothing ? Tensors() : Tensors{(x * weight).sum().view({1})};
  }
  void unshard() override { events_.push_back("unshard"); }
  void reshard() override { events_.push_back("reshard"); }
  void expect_last_backward() override { events_.push_back("expect last"); }
  void reduce_gradients() override { events_.push_back("reduce"); }
  void finish_gradients() override {}
  std::span<Shard> owned() override { return {}; }
  void parameters_changed(ParametersChange) override {}

  bool returns_nothing = false;

 private:
  std::vector<std::string>& events_;
  bool last_;

 public:
  at::Tensor weight;
};

Batch rows(int64_t first, int64_t count) {
  Batch batch;
  batch.tokens = at::arange(first, first + 3 * count).view({count, 3});
  batch.labels = batch.tokens;
  return batch;
}

// Rank r holds stage r, whose factor is r + 2.
struct Ranked {
  Ranked(Rendezvous& rendezvous, int64_t rows_each, GradientScale gradients = GradientScale::none)
      : mesh(mesh::build(std::vector<Axis>{{"pp", rendezvous.world_size()}, {"tp", 1}}, rendezvous, "")) {
    Pipeline pipeline;
    pipeline.rank_of_stage.clear();
    for (int stage = 0; stage < rendezvous.world_size(); ++stage) pipeline.rank_of_stage.push_back(stage);
    pipeline.schedule = std::make_shared<tests::ForwardsFirst>();
    pipeline.config.microbatch_size = rows_each;
    pipeline.config.gradients = gradients;
    stages = std::make_unique<Stages>(pipeline, rendezvous.rank());
    auto made = std::make_unique<Factor>(events, rendezvous.rank() + 2.0,
                                         rendezvous.rank() + 1 == rendezvous.world_size());
    stage = made.get();
    stages->push_back(std::move(made));
    runner = std::make_unique<Runner>(*stages, mesh);
  }
  double gradient() const { return stage->weight.grad().defined() ? stage->weight.grad().item<double>() : 0; }

  std::vector<std::string> events;
  DeviceMesh mesh;
  std::unique_ptr<Stages> stages;
  Factor* stage = nullptr;
  std::unique_ptr<Runner> runner;
};

TEST(Runner, SumsLossesAndGradientsOverMicrobatchesAndBatches) {
  const std::vector<Batch> batches = {rows(0, 4), rows(12, 4)};
  const double tokens = 23 * 24 / 2;
  for (const int ranks : {1, 2, 3})
    for (const int64_t rows_each : {1, 2, 4})
      ThreadWorld::run(ranks, [&](Rendezvous& rendezvous) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, microbatches of " + std::to_string(rows_each));
        Ranked my(rendezvous, rows_each);
        double product = 1;
        for (int rank = 0; rank < ranks; ++rank) product *= rank + 2;
        const auto scale = [] { return 0.5; };
        const bool last = rendezvous.rank() + 1 == ranks;
        EXPECT_DOUBLE_EQ(my.runner->train(batches, scale).item<double>(), last ? product * tokens : 0);
        EXPECT_DOUBLE_EQ(my.gradient(), 0.5 * product / (rendezvous.rank() + 2) * tokens);
        EXPECT_EQ(my.runner->peak_alive(), 4 / rows_each);
        EXPECT_EQ(my.runner->count_microbatches(batches), 8 / rows_each);
      });
}

TEST(Runner, EvaluatesTheSameLossWithoutGradients) {
  const std::vector<Batch> batches = {rows(0, 2)};
  ThreadWorld::run(2, [&](Rendezvous& rendezvous) {
    Ranked my(rendezvous, 1);
    EXPECT_DOUBLE_EQ(my.runner->evaluate(batches).item<double>(), rendezvous.rank() == 1 ? 6 * 15 : 0);
    EXPECT_FALSE(my.stage->weight.grad().defined());
    EXPECT_EQ(my.runner->peak_alive(), 0);
    EXPECT_THAT(my.events, ElementsAre("unshard", "forward of 1", "forward of 1", "reshard"));
  });
}

// Stages stay gathered and unreduced between calls of one step. Otherwise each call would gather and reduce.
TEST(Runner, StagesAreFreedAndReducedInTheLastCallOnly) {
  const std::vector<Batch> batches = {rows(0, 2), rows(6, 2)};
  ThreadWorld::run(1, [&](Rendezvous& rendezvous) {
    Ranked my(rendezvous, 1);
    my.runner->train(batches, [] { return 1.0; });
    EXPECT_THAT(my.events, ElementsAre("unshard", "forward of 1", "forward of 1", "unshard", "forward of 1",
                                       "forward of 1", "expect last", "reduce", "reshard"));
  });
}

TEST(Runner, AsksForTheScaleOnceAndOnlyAtTheLoss) {
  const std::vector<Batch> batches = {rows(0, 3), rows(9, 3)};
  ThreadWorld::run(2, [&](Rendezvous& rendezvous) {
    Ranked my(rendezvous, 1);
    for (int step = 0; step < 2; ++step) {
      int asked = 0;
      my.runner->train(batches, [&] {
        ++asked;
        return 1.0;
      });
      EXPECT_EQ(asked, rendezvous.rank() == 1 ? 1 : 0);
    }
  });
}

TEST(Runner, GradientsAreDividedByTheMicrobatchesOfACallWhereThatIsAskedFor) {
  const std::vector<Batch> batches = {rows(0, 4), rows(12, 2)};
  ThreadWorld::run(1, [&](Rendezvous& rendezvous) {
    Ranked my(rendezvous, 1, GradientScale::by_microbatches);
    my.runner->train(batches, [] { return 1.0; });
    EXPECT_DOUBLE_EQ(my.gradient(), 66.0 / 4 + 87.0 / 2);
  });
}

TEST(Runner, RecordsEveryActionWithItsCall) {
  const std::vector<Batch> batches = {rows(0, 2), rows(6, 2)};
  ThreadWorld::run(2, [&](Rendezvous& rendezvous) {
    Ranked my(rendezvous, 2);
    Recording recording;
    my.runner->record(&recording);
    my.runner->train(batches, [] { return 1.0; });
    my.runner->record(nullptr);
    const size_t recorded = recording.actions.size();
    my.runner->train(batches, [] { return 1.0; });
    EXPECT_EQ(recording.actions.size(), recorded);
    std::vector<std::string> names;
    for (const RanAction& ran : recording.actions) {
      EXPECT_LE(ran.begin, ran.ready);
      EXPECT_LE(ran.ready, ran.end);
      if (ran.call == 1) names.push_back(schedule::name_of(ran.action));
    }
    if (rendezvous.rank() == 0)
      EXPECT_THAT(names,
                  ElementsAre("0UNSHARD", "0F0", "0SEND_F0", "0RECV_B0", "0B0", "0REDUCE_GRAD", "0RESHARD"));
    else
      EXPECT_THAT(names,
                  ElementsAre("1UNSHARD", "1RECV_F0", "1F0", "1B0", "1SEND_B0", "1REDUCE_GRAD", "1RESHARD"));
  });
}

TEST(Runner, NamesALastStageWithoutALoss) {
  ThreadWorld::run(1, [&](Rendezvous& rendezvous) {
    Ranked my(rendezvous, 1);
    my.stage->returns_nothing = true;
    const Batch batch = rows(0, 1);
    EXPECT_THAT(thrown_by([&] {
                  my.runner->evaluate({&batch, 1});
                }),
                HasSubstr("the last unit returned no loss"));
  });
}

TEST(Runner, RowsThatDoNotDivideAreRefusedBeforeAnythingRuns) {
  ThreadWorld::run(1, [&](Rendezvous& rendezvous) {
    Ranked my(rendezvous, 2);
    const Batch batch = rows(0, 3);
    EXPECT_NE(thrown_by([&] { my.runner->evaluate({&batch, 1}); }), "");
    EXPECT_TRUE(my.events.empty());
  });
}

}  // namespace
}  // namespace heddle
