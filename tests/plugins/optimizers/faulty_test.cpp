// The kits of optimizers refuse each fault of tests/bad_plugins/faults/optimizer.cpp by the sentence that it
// breaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "heddle/testing/conformance.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

kits::Report faulty_optimizer(const std::string& fault) {
  setenv("HEDDLE_FAULT", fault.c_str(), 1);
  kits::KitOptions options;
  options.ranks = {2};
  const kits::Report report =
      kits::check_plugin(HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_faulty_optimizer.so", options);
  unsetenv("HEDDLE_FAULT");
  return report;
}

struct OptimizerFault {
  std::string fault, sentence, detail;
};

class FaultyOptimizer : public ::testing::TestWithParam<OptimizerFault> {};

TEST_P(FaultyOptimizer, IsRefusedByTheKitOfTheSentence) {
  const kits::Report report = faulty_optimizer(GetParam().fault);
  const kits::Check* kit = nullptr;
  for (const kits::Check& check : report.checks)
    if (check.rule.find(GetParam().sentence) != std::string::npos) kit = &check;
  ASSERT_NE(kit, nullptr) << report.text();
  EXPECT_FALSE(kit->passed) << report.text();
  EXPECT_THAT(kit->detail, HasSubstr(GetParam().detail)) << report.text();
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, FaultyOptimizer,
    ::testing::Values(
        OptimizerFault{"state_on_cpu", "meta in a dry world",
                       "a state tensor of meta weights is not on meta"},
        OptimizerFault{"forgets_state", "values copied into it continue",
                       "the weight 'embed_tokens.weight' has "
                       "other bits"},
        OptimizerFault{"forgets_state", "can_undo()", "one update after another was taken back"},
        OptimizerFault{"decays_without_gradient", "whose gradient is undefined", "and its weight changes"},
        OptimizerFault{"ignores_skip", "nothing changes where skip is 1", "has other bits"},
        OptimizerFault{"ignores_divisor", "divided by the divisor", "has other bits"},
        OptimizerFault{"ignores_groups", "lr_mult of a group", "has lr_mult 0, and changes"},
        OptimizerFault{"norm_of_the_shard", "does not depend on the split", "differs from one rank's by "},
        OptimizerFault{"dot_in_name", "continue a run", "has an empty name or a dot"},
        OptimizerFault{"state_twice", "continue a run",
                       "the state 'buffer' of 'embed_tokens.weight' is given twice"},
        OptimizerFault{"takes_master", "continue a run", "the name of the engine's master copies"},
        OptimizerFault{"box_outside", "continue a run", "is outside of its whole"},
        OptimizerFault{"common_key", "the registry accepts all",
                       "has a field 'lr', which is read for every optimizer"},
        OptimizerFault{"no_such_key", "the registry accepts all", "names 'fused' in no_effect"}),
    [](const auto& info) {
      return info.param.fault + (info.param.sentence == "can_undo()" ? "_undone" : "");
    });

TEST(FaultyOptimizerItself, PassesWithoutAFault) {
  const kits::Report report = faulty_optimizer("");
  EXPECT_TRUE(report.passed()) << report.text();
}

}  // namespace
}  // namespace heddle::tests
