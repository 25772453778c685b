// Order of the calls that the sharding engine makes on its buckets.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/sharding/written_stage.h"

namespace heddle::sharding {
namespace {

using ::testing::ElementsAre;

TEST(ShardingEngine, GathersFreesAndReducesInOneOrder) {
  EXPECT_THAT(step_of("ab", {}),
              ElementsAre("gather a", "wait for a", "gather b", "run a", "free a", "wait for b", "run b",
                          "free b",                                                    //
                          "gather b", "wait for b", "gather a", "reduce b", "free b",  //
                          "wait for a", "reduce a", "free a", "wait for sum b", "wait for sum a", "place a",
                          "place b"));
}

TEST(ShardingEngine, GathersAheadWithinBothLimits) {
  const auto ahead = [](Lookahead limit) {
    Policy policy;
    policy.forward = limit;
    const Lines lines = step_of("abcd", policy);
    const auto first = std::find(lines.begin(), lines.end(), "run a");
    return std::count_if(lines.begin(), first, [](const auto& line) { return line.starts_with("gather"); }) -
           1;
  };
  EXPECT_EQ(ahead({0, kUnlimited}), 0);
  EXPECT_EQ(ahead({2, kUnlimited}), 2);
  EXPECT_EQ(ahead({9, 0}), 0);
  EXPECT_EQ(ahead({9, 1}), 0);  // a unit has two elements
  EXPECT_EQ(ahead({9, 5}), 2);
}

TEST(ShardingEngine, KeepsWhatIsAskedToStay) {
  EXPECT_THAT(
      step_of("ab", {}, Reshard::after_backward),
      ElementsAre("gather a", "wait for a", "gather b", "run a", "wait for b", "run b", "reduce b", "free b",
                  "reduce a", "free a", "wait for sum b", "wait for sum a", "place a", "place b"));
  const Lines two = written([](Lines& lines, Rendezvous& rendezvous) {
    Stage stage(lines, "a", {}, rendezvous, Reshard::after_last_backward);
    stage.forward().backward();
    lines.push_back("last");
    stage.step();
  });
  EXPECT_THAT(two, ElementsAre("gather a", "wait for a", "run a", "last", "run a", "reduce a", "free a",
                               "wait for sum a", "place a"));
}

// The last unit also uses the table of the first unit.
TEST(ShardingEngine, GathersATiedParameterForEachUseAndFreesItAtTheEndOfTheBackward) {
  Policy policy;
  policy.forward.units = policy.backward.units = 0;
  EXPECT_THAT(step_of("aba", policy),
              ElementsAre("gather a", "wait for a", "run a", "free a", "gather b", "wait for b", "run b",
                          "free b", "gather a", "wait for a", "run a", "free a",  //
                          "gather a", "wait for a", "gather b", "wait for b",     //
                          "reduce b", "free b", "free a", "reduce a",             //
                          "wait for sum b", "wait for sum a", "place a", "place b"));
}

TEST(ShardingEngine, ReducesOnceAStepOrOnceAMicrobatch) {
  const auto reductions = [](bool each) {
    Policy policy;
    policy.reduce_each_microbatch = each;
    const Lines lines = written([&](Lines& into, Rendezvous& rendezvous) {
      Stage stage(into, "ab", policy, rendezvous);
      for (int i = 0; i < 2; ++i) stage.forward().backward();
      stage.step();
      EXPECT_EQ(static_cast<WrittenGradients*>(stage.seen[0]->gradients())->kept > 0, !each);
    });
    return std::count(lines.begin(), lines.end(), "reduce a");
  };
  EXPECT_EQ(reductions(false), 1);
  EXPECT_EQ(reductions(true), 3);
}

TEST(ShardingEngine, LetsNoMoreReductionsFlyThanThePolicySays) {
  const auto most = [](const Policy& policy) {
    int flying = 0, out = 0;
    for (const std::string& line : step_of("abcd", policy)) {
      flying += line.starts_with("reduce") - line.starts_with("wait for sum");
      out = std::max(out, flying);
    }
    return out;
  };
  Policy policy;
  EXPECT_EQ(most(policy), 2);
  policy.buckets_in_flight = 3;
  EXPECT_EQ(most(policy), 3);
  policy.elements_in_flight = 4;
  EXPECT_EQ(most(policy), 2);
  policy.elements_in_flight = 1;  // one reduction is always allowed
  EXPECT_EQ(most(policy), 1);
}

TEST(ShardingEngine, ReducesAtTheEndWhereAskedAndAlsoWithoutAMicrobatch) {
  Policy policy;
  policy.reduce_behind_backward = false;
  const Lines lines = step_of("ab", policy);
  EXPECT_GT(std::find(lines.begin(), lines.end(), "reduce b"),
            std::find(lines.begin(), lines.end(), "wait for a"));
  EXPECT_THAT(
      written([](Lines& into, Rendezvous& rendezvous) {
        Stage stage(into, "ab", {}, rendezvous);
        static_cast<WrittenGradients*>(stage.seen[1]->gradients())->had_ = false;
        stage.engine->finish_gradients();
      }),
      ElementsAre("reduce b", "reduce a", "wait for sum b", "wait for sum a", "place a", "place b, unused"));
}

TEST(ShardingEngine, FreesBehindAForwardWithoutGradientsAndLeavesFrozenBucketsAlone) {
  const Lines lines = written([](Lines& into, Rendezvous& rendezvous) {
    const at::NoGradGuard no_gradients;
    Stage(into, "aF", {}, rendezvous, Reshard::after_backward).forward();
  });
  EXPECT_THAT(lines, ElementsAre("gather a", "wait for a", "gather F", "run a", "free a", "wait for F",
                                 "run F", "free F"));
  EXPECT_THAT(step_of("aF", {}), ::testing::Not(::testing::Contains("reduce F")));
}

// Units that stay gathered after a validation are stale once parameters change.
TEST(ShardingEngine, GathersAgainWhatWasWholeWhenParametersChange) {
  const Lines lines = written([](Lines& into, Rendezvous& rendezvous) {
    const at::NoGradGuard no_gradients;
    Stage stage(into, "a", {}, rendezvous, Reshard::after_last_backward);
    stage.forward();
    into.push_back("change");
    stage.engine->parameters_changed(ParametersChange::updated);
    stage.forward();
  });
  EXPECT_THAT(lines, ElementsAre("gather a", "wait for a", "run a", "change", "free a", "gather a",
                                 "wait for a", "run a"));
}

TEST(ShardingEngine, GathersOneUnitAheadAndWaitsForGathersThatNobodyUsed) {
  EXPECT_THAT(written([](Lines& into, Rendezvous& rendezvous) {
                Stage(into, "abc", {}, rendezvous).engine->unshard();
              }),
              ElementsAre("gather a", "gather b", "wait for a", "wait for b"));
}

TEST(ShardingEngine, AnnouncesUnitsThatStayButForGathersThatHoldMemoryBesideThem) {
  const auto announced = [](bool beside) {
    return written([beside](Lines& into, Rendezvous& rendezvous) {
      Stage stage(into, "abcd", {}, rendezvous, Reshard::after_last_backward);
      stage.seen[3]->beside = beside;
      stage.engine->unshard();
      into.push_back("announced");
      const at::NoGradGuard no_gradients;
      stage.forward();
    });
  };
  EXPECT_THAT(announced(false),
              ElementsAre("gather a", "gather b", "gather c", "gather d", "announced", "wait for a", "run a",
                          "wait for b", "run b", "wait for c", "run c", "wait for d", "run d"));
  EXPECT_THAT(announced(true),
              ElementsAre("gather a", "gather b", "gather c", "announced", "wait for a", "run a",
                          "wait for b", "run b", "wait for c", "gather d", "run c", "wait for d", "run d"));
}

TEST(ShardingEngine, RefusesWhatWouldComputeWithTheWrongParameters) {
  written([](Lines& lines, Rendezvous& rendezvous) {
    Stage stage(lines, "ab", {}, rendezvous);
    EXPECT_EQ(stage.engine->hold_whole().size(), 2u);
    EXPECT_EQ(refusal([&] { stage.forward(); }),
              "error[internal] mine: a forward with gradients ran while parameters are held whole\n"
              "  hint: end the scope Unsharded before training goes on");
    EXPECT_EQ(refusal([&] { stage.engine->hold_whole(); }),
              "error[internal] mine: parameters are held whole already\n"
              "  hint: use the existing scope Unsharded; it does not nest");
    EXPECT_EQ(refusal([&] { stage.engine->parameters_changed(ParametersChange::updated); }),
              "error[internal] mine: parameters changed while they are held whole\n"
              "  hint: end the scope Unsharded before the optimizer steps");
    stage.engine->release_whole();
    lines.clear();
    stage.seen[1]->fails = true;
    EXPECT_THROW(stage.engine->hold_whole(), std::runtime_error);
    EXPECT_EQ(lines.back(), "free a");
    stage.seen[1]->fails = false;
    stage.step();  // the stage works as before
  });
}

TEST(ShardingEngine, NamesAParameterThatLiesInNoBucket) {
  Lines lines;
  Units units;
  units.push_back(times(lines, "lost", at::full({2}, 1.0)));
  EXPECT_EQ(refusal([&] { Model(std::move(units), {}, {Reshard::after_forward}, "mine"); }),
            "error[internal] mine: parameter 'lost' lies in no bucket\n"
            "  hint: make buckets of all that new_slots() gives");
}

}  // namespace
}  // namespace heddle::sharding
