// Updates before the norm of all stages is known give the bits of a run that waits, whatever is clipped,
// skipped and rolled back.
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <limits>

#include "heddle/train/step.h"
#include "plugins/bad_backward.h"
#include "plugins/pipelines.h"
#include "plugins/toy_training.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("PostValidation.*");

constexpr int kLateSteps = 8, kLateBad = 4;
constexpr double kNever = 1e300;

Training late(const std::string& schedule, std::vector<Axis> axes, const std::string& strategy = "single",
              const std::string& section = "{}") {
  Training run = single_model();
  run.axes = std::move(axes);
  run.strategy = strategy;
  run.section = section;
  run.steps = kLateSteps;
  run.pipeline.microbatch_size = 1;
  if (!schedule.empty()) run.make_schedule = [schedule] { return make_schedule(schedule); };
  return run;
}

Training in_time(Training run, bool early) {
  run.pipeline.post_validation = early;
  return run;
}

// Returns a limit that clips about half of the steps.
double middle_norm() {
  static const double norm = [] {
    Training run = late("", {});
    run.max_norm = kNever;
    std::vector<double> norms = train(run).norms;
    std::sort(norms.begin(), norms.end());
    return (norms[kLateSteps / 2 - 1] + norms[kLateSteps / 2]) / 2;
  }();
  return norm;
}

int clipped(const Outcome& outcome, double most) {
  return static_cast<int>(
      std::count_if(outcome.norms.begin(), outcome.norms.end(), [&](double norm) { return norm > most; }));
}

void expect_the_same_bits(Training run) {
  for (const double max_norm : {middle_norm(), kNever, 1e-3}) {
    SCOPED_TRACE("max_norm " + std::to_string(max_norm));
    run.max_norm = max_norm;
    Training alone = late("", {});
    alone.max_norm = max_norm;
    alone.model = run.model;
    const Outcome want = train(in_time(run, false)), got = train(in_time(run, true));
    expect_bit_equal(got, want);
    expect_close(got, train(alone));
    if (max_norm == middle_norm()) {
      EXPECT_GT(clipped(got, max_norm), 0);
      EXPECT_LT(clipped(got, max_norm), kLateSteps);
    }
  }
}

TEST(PostValidation, EqualsTheBitsOfAnUpdateThatWaits) {
  for (const int ranks : {2, 3, 4})
    for (const char* schedule : {"zb2p", "1f1b", "gpipe"}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + schedule);
      expect_the_same_bits(late(schedule, {{"pp", ranks}, {"tp", 1}}));
    }
}

TEST(PostValidation, EqualsSingleWithSeveralStagesPerRank) {
  for (const char* schedule : {"interleaved1f1b", "interleavedzerobubble", "zbvzerobubble", "dualpipev"}) {
    SCOPED_TRACE(schedule);
    expect_the_same_bits(late(schedule, {{"pp", 2}, {"tp", 1}}));
  }
}

TEST(PostValidation, EqualsSingleUnderFsdp2DdpAndHybridSharding) {
  for (const std::string& line :
       alternatives("[fsdp2 dp1|fsdp2 dp2|fsdp2(reshard_after_forward: true) dp2|fsdp2 dp4 "
                    "replicas2|ddp(gradient_as_bucket_view: true) dp2]")) {
    SCOPED_TRACE(line);
    expect_the_same_bits(on(late("", {}), line + " pp2(zb2p) rows1"));
  }
}

TEST(PostValidation, EqualsSingleWithTensorParallelismAccumulationAndRecomputation) {
  for (const std::string& line : alternatives("fsdp2 dp2 tp2(sequence) pp2(zb2p) rows1 calls2[| full]"))
    for (const double max_norm : {0.5, kNever}) {
      Training run = on(four_heads("qwen3"), line);
      run.steps = 6;
      run.max_norm = max_norm;
      expect_bit_equal(train(in_time(run, true)), train(in_time(run, false)));
    }
}

// The rank with the bad gradient is the first to finish, or the last. In that case the other ranks have
// already updated.
TEST(PostValidation, RollsBackAnUpdateThatIsSkipped) {
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    for (const size_t unit : {0, 6, 99}) {  // 99: the loss of the last unit
      SCOPED_TRACE(std::to_string(value) + " behind unit " + std::to_string(unit));
      const auto bad = [&](const Training& run, int a_step) {
        return with_bad_step(run, -1, unit, {kLateBad, a_step, value, unit == 99});
      };
      Training alone = late("", {});
      alone.microbatches = 12;
      const Outcome want = train(bad(alone, 12));
      for (const int data_ranks : {1, 2}) {
        const Training run =
            bad(late("zb2p", {{"pp", 4}, {"dp_shard", data_ranks}}, "fsdp2", kFloat), 12 / data_ranks);
        const Outcome got = train(in_time(run, true));
        expect_bit_equal(got, train(in_time(run, false)));
        expect_close(got, want);
        for (int step = 0; step < kLateSteps; ++step) EXPECT_EQ(got.norms[step] == -1, step == kLateBad);
      }
    }
}

// The last rank ends its second step only after the first rank began its third step. This is impossible in
// the first step, where the first transfer of a pair blocks both ranks (tests/strict_ranks.h).
struct LateRank {
  std::promise<void> begun;
  std::shared_future<void> seen = begun.get_future().share();
  std::atomic<bool> met = false;
  std::chrono::milliseconds patience{};
};

class LastIsLate : public ParallelStage {
 public:
  LastIsLate(std::unique_ptr<ParallelStage> stage, int rank, int ranks, LateRank& delayed)
      : stage_(std::move(stage)), rank_(rank), ranks_(ranks), delayed_(delayed) {}
  Tensors forward(Tensors inputs, const Batch& batch) override {
    if (rank_ == 0 && forwards_++ == 2 * 12) delayed_.begun.set_value();
    return stage_->forward(std::move(inputs), batch);
  }
  void finish_gradients() override {
    if (rank_ == ranks_ - 1 && steps_++ == 1)
      delayed_.met = delayed_.seen.wait_for(delayed_.patience) == std::future_status::ready;
    stage_->finish_gradients();
  }
  std::span<Shard> owned() override { return stage_->owned(); }
  void parameters_changed(ParametersChange change) override { stage_->parameters_changed(change); }
  bool can_restart() const override { return true; }
  void restart_step() override { stage_->restart_step(); }

 private:
  std::unique_ptr<ParallelStage> stage_;
  int rank_, ranks_, forwards_ = 0, steps_ = 0;
  LateRank& delayed_;
};

class WithALateRank : public IStrategy {
 public:
  explicit WithALateRank(LateRank& delayed) : delayed_(delayed) {}
  Needs needs() const override { return single_->needs(); }
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                             std::span<const Placed> placed) override {
    return std::make_unique<LastIsLate>(single_->parallelize(std::move(units), mesh, placed), mesh.rank("pp"),
                                        mesh.size("pp"), delayed_);
  }

 private:
  std::unique_ptr<IStrategy> single_ = make_strategy("single", "{}");
  LateRank& delayed_;
};

TEST(PostValidation, LetsARankBeginTheNextStepEarly) {
  for (const bool early : {true, false}) {
    LateRank delayed;
    delayed.patience = early ? std::chrono::seconds(60) : std::chrono::milliseconds(300);
    Training run = in_time(late("zb2p", {{"pp", 4}, {"tp", 1}}), early);
    run.steps = 3;
    run.make_strategy = [&delayed] { return std::make_unique<WithALateRank>(delayed); };
    train(run);
    EXPECT_EQ(delayed.met, early);
  }
}

// A stage that cannot restart a step.
class GoesOn : public ParallelStage {
 public:
  explicit GoesOn(std::unique_ptr<ParallelStage> stage) : stage_(std::move(stage)) {}
  Tensors forward(Tensors inputs, const Batch& batch) override {
    return stage_->forward(std::move(inputs), batch);
  }
  void finish_gradients() override { stage_->finish_gradients(); }
  std::span<Shard> owned() override { return stage_->owned(); }
  void parameters_changed(ParametersChange change) override { stage_->parameters_changed(change); }

 private:
  std::unique_ptr<ParallelStage> stage_;
};

class WithoutRestart : public IStrategy {
 public:
  Needs needs() const override { return single_->needs(); }
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                             std::span<const Placed> placed) override {
    return std::make_unique<GoesOn>(single_->parallelize(std::move(units), mesh, placed));
  }

 private:
  std::unique_ptr<IStrategy> single_ = make_strategy("single", "{}");
};

TEST(PostValidation, NeedsStagesThatCanRestartAStep) {
  Training run = in_time(late("zb2p", {{"pp", 2}, {"tp", 1}}), true);
  run.make_strategy = [] { return std::make_unique<WithoutRestart>(); };
  EXPECT_THAT(error_of([&] { train(run); }), ::testing::HasSubstr("cannot begin anew"));
}

TEST(PostValidation, NeedsANormThatIsASum) {
  const Training run = in_time(late("zb2p", {{"pp", 2}, {"tp", 1}}), true);
  const auto build_a_step = [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(run.axes, rendezvous, "test: norm");
    Stages stages = build(run, mesh);
    StepConfig config;
    config.norm_type = std::numeric_limits<double>::infinity();
    Step step(stages, mesh, config);
  };
  ThreadWorld world(2, std::chrono::minutes(1));
  EXPECT_THAT(error_of([&] { world.run(build_a_step); }),
              ::testing::HasSubstr(".pp_post_validation: post-validation passes a sum of squares along the "
                                   "pipeline"));
}

}  // namespace
}  // namespace heddle::tests
