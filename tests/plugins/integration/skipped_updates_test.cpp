// If one rank has a non-finite gradient, every rank skips the update, under every strategy and topology.
#include <gtest/gtest.h>

#include <limits>

#include "plugins/bad_backward.h"
#include "plugins/topologies.h"

namespace heddle::tests {
namespace {

constexpr int kBadStep = 2;
constexpr double kNoClipping = 1e300;

// Returns the run with a bad gradient at the output of `unit` on `rank`, whose stage contains the unit.
Training with_bad_gradient(Training run, int rank, size_t unit, double value) {
  int data_ranks = 1;
  for (const Axis& axis : run.axes)
    if (axis.name.starts_with("dp")) data_ranks *= axis.size;
  run.steps = 6;
  return with_bad_step(run, rank, unit,
                       {kBadStep, run.make_schedule ? 12 / data_ranks : run.microbatches, value});
}

// A topology, and the rank that gets the bad gradient.
using World = std::pair<std::string, int>;

std::vector<World> worlds() {
  std::vector<World> out = {{"ddp dp3", 2},
                            {"ddp(gradient_as_bucket_view: true) dp2", 0},
                            {"fsdp2 dp3", 1},
                            {"fsdp2 dp4 replicas2", 3},
                            {"megatron dp2", 1},
                            {"megatron(use_distributed_optimizer: true, overlap_grad_reduce: true) dp2", 1},
                            {"single tp2", 1},
                            {"ddp dp2 tp2(sequence)", 2},
                            {"fsdp2 dp2 tp2", 3},
                            {"single pp2(1f1b) rows1", 0},
                            {"fsdp2 dp2 pp2(1f1b) rows1", 1},
                            {"ddp dp2 tp2(sequence) pp2(1f1b) rows1", 3}};
  for (const std::string& line : alternatives("megatron_fsdp(zero_dp_strategy: [0|1|2|3]) dp2"))
    out.emplace_back(line, 1);
  return out;
}

Training skipping(const std::string& line) {
  Training run = four_heads();
  run.microbatches = 1;
  return on(run, line);
}

void expect_one_skipped(const Outcome& outcome) {
  for (int step = 0; step < 6; ++step) EXPECT_EQ(outcome.norms[step] == -1, step == kBadStep) << step;
}

TEST(SkippedUpdates, AreEqualUnderEveryStrategyForEveryRank) {
  using Case = std::pair<double, double>;
  for (const auto& [value, max_norm] :
       std::vector<Case>{{std::numeric_limits<double>::infinity(), 1.0},
                         {std::numeric_limits<double>::quiet_NaN(), kNoClipping}}) {
    Training alone = with_bad_gradient(skipping("single"), 0, 1, value);
    alone.max_norm = max_norm;
    const Outcome want = train(alone);
    expect_one_skipped(want);
    for (const auto& [line, rank] : worlds()) {
      SCOPED_TRACE(line + ", " + std::to_string(value));
      Training run = with_bad_gradient(skipping(line), rank, 1, value);
      run.max_norm = max_norm;
      const Outcome got = train(run);
      expect_one_skipped(got);
      expect_close(got, want);
    }
  }
}

// The last norm's weight is whole on both ranks of tp, and each rank computes its gradient separately.
TEST(SkippedUpdates, AreSkippedOnEveryRankIfOneRankHasABadGradient) {
  for (const size_t unit : {0, 3}) {
    SCOPED_TRACE(unit);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const Outcome want = train(with_bad_gradient(skipping("single"), 0, unit, nan));
    const Outcome got = train(with_bad_gradient(skipping("single tp2"), 1, unit, nan));
    expect_one_skipped(got);
    expect_close(got, want);
  }
}

TEST(SkippedUpdates, DoNotAffectLaterSteps) {
  const Training run = skipping("fsdp2 dp3");
  const Outcome once = train(with_bad_gradient(run, 0, 1, std::numeric_limits<double>::infinity()));
  expect_bit_equal(train(with_bad_gradient(run, 2, 0, std::numeric_limits<double>::quiet_NaN())), once);
}

}  // namespace
}  // namespace heddle::tests
