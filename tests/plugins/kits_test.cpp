// The kits of the SDK on the plugins of the build, and on one that only looks right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "heddle/testing/strategy.h"

namespace {

using heddle::testing::Check;
using heddle::testing::equals_single;
using ::testing::HasSubstr;

const std::string kFloat32 = ", mp_policy: {param_dtype: float32, reduce_dtype: float32}";

heddle::PluginRegistry built() {
  return heddle::PluginRegistry({HEDDLE_BINARY_DIR "/plugins"});
}

TEST(StrategyKit, PassesDdpOnRanksThatDoNotDivideTheSizes) {
  heddle::PluginRegistry plugins = built();
  for (const int ranks : {1, 2, 3}) {
    const Check check = equals_single("strategy: ddp", plugins, ranks);
    EXPECT_TRUE(check.passed) << check.rule << ": " << check.detail;
  }
}

TEST(StrategyKit, PassesFsdp2OnRanksThatDoNotDivideTheSizes) {
  heddle::PluginRegistry plugins = built();
  for (const int ranks : {1, 2, 3, 4}) {
    const Check check = equals_single("strategy: fsdp2" + kFloat32, plugins, ranks);
    EXPECT_TRUE(check.passed) << check.rule << ": " << check.detail;
  }
}

TEST(StrategyKit, PassesEveryStrategyWhenBackwardsAreSplitAndWhenUnitsAreRecomputed) {
  heddle::PluginRegistry plugins = built();
  for (const std::string& words : {std::string("strategy: ddp"), "strategy: fsdp2" + kFloat32})
    for (const int ranks : {1, 2, 3}) {
      const Check split = heddle::testing::equals_single_when_split(words, plugins, ranks);
      EXPECT_TRUE(split.passed) << split.rule << ": " << split.detail;
      const Check again = heddle::testing::equals_single_when_recomputed(words, plugins, ranks);
      EXPECT_TRUE(again.passed) << again.rule << ": " << again.detail;
    }
}

// It sums a gradient when its hook is called in the last backward. That may come before a drain, and more
// than once for a weight of two units.
TEST(StrategyKit, FailsAStrategyThatTakesTheFirstCallOfAHookForTheWholeGradient) {
  heddle::PluginRegistry plugins({});
  plugins.load(HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_hasty.so");
  EXPECT_TRUE(equals_single("strategy: hasty", plugins, 2).passed);
  const Check split = heddle::testing::equals_single_when_split("strategy: hasty", plugins, 2);
  EXPECT_FALSE(split.passed);
  EXPECT_EQ(split.rule, "{strategy: hasty} on 2 ranks trains as single does when backwards are split");
  EXPECT_THAT(split.detail, HasSubstr("loss differs by"));
  EXPECT_FALSE(heddle::testing::equals_single_when_recomputed("strategy: hasty", plugins, 2).passed);
}

TEST(StrategyKit, FailsAStrategyThatForgetsToSumGradients) {
  heddle::PluginRegistry plugins({});
  plugins.load(HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_forgets.so");
  EXPECT_TRUE(equals_single("strategy: forgets", plugins, 1).passed);
  const Check check = equals_single("strategy: forgets", plugins, 2);
  EXPECT_FALSE(check.passed);
  EXPECT_EQ(check.rule, "{strategy: forgets} on 2 ranks trains as single does");
  EXPECT_THAT(check.detail, HasSubstr("gradient norm by"));
}

TEST(StrategyKit, SaysWhyAStrategyDoesNotRun) {
  heddle::PluginRegistry plugins({});
  plugins.load(HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_late.so");
  const Check check = equals_single("strategy: late", plugins, 2);
  EXPECT_FALSE(check.passed);
  EXPECT_THAT(check.detail,
              HasSubstr("the plugin 'late' 0.1.0 threw while it parallelized the model: no workspace"));
}

TEST(Engine, WorksTwiceInOneProcessAtTheSameTime) {
  Check one, two;
  std::thread other([&] {
    heddle::PluginRegistry plugins = built();
    one = equals_single("strategy: ddp", plugins, 2);
  });
  heddle::PluginRegistry plugins = built();
  two = equals_single("strategy: fsdp2" + kFloat32, plugins, 2);
  other.join();
  EXPECT_TRUE(one.passed) << one.detail;
  EXPECT_TRUE(two.passed) << two.detail;
}

TEST(DoorKit, PassesWhatTheRegistryAdmitsAndNamesTheRuleThatIsBroken) {
  const std::string gallery = HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_";
  EXPECT_TRUE(heddle::testing::check_plugin(gallery + "plain.so").passed());
  const heddle::testing::Report report = heddle::testing::check_plugin(gallery + "other_torch.so");
  EXPECT_FALSE(report.passed());
  ASSERT_EQ(report.checks.size(), 2u);
  EXPECT_EQ(report.checks[1].rule, "the stamp fits this engine");
  EXPECT_THAT(report.text(), HasSubstr("FAIL  the stamp fits this engine: the plugin 'other_torch' 0.1.0"));
}

}  // namespace
