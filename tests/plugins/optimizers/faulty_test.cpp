// The kits of optimizers refuse each fault of tests/bad_plugins/faults/optimizer.cpp by the sentence that it
// breaks.
#include "plugins/kit_faults.h"

namespace heddle::tests {
namespace {

class FaultyOptimizer : public ::testing::TestWithParam<KitFault> {};

TEST_P(FaultyOptimizer, IsRefusedByTheKitOfTheSentence) {
  expect_refused(fault_report("optimizer", GetParam().fault, kit_options({2})), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, FaultyOptimizer,
    ::testing::Values(
        KitFault{"state_on_cpu", "meta in a dry world", "a state tensor of meta weights is not on meta"},
        KitFault{"forgets_state", "values copied into it continue",
                 "the weight 'embed_tokens.weight' has "
                 "other bits"},
        KitFault{"forgets_state", "can_undo()", "one update after another was taken back"},
        KitFault{"decays_without_gradient", "whose gradient is undefined", "and its weight changes"},
        KitFault{"ignores_skip", "nothing changes where skip is 1", "has other bits"},
        KitFault{"ignores_divisor", "divided by the divisor", "has other bits"},
        KitFault{"ignores_groups", "lr_mult of a group", "has lr_mult 0, and changes"},
        KitFault{"norm_of_the_shard", "does not depend on the split", "differs from one rank's by "},
        KitFault{"dot_in_name", "continue a run", "has an empty name or a dot"},
        KitFault{"state_twice", "continue a run",
                 "the state 'buffer' of 'embed_tokens.weight' is given twice"},
        KitFault{"takes_master", "continue a run", "the name of the engine's master copies"},
        KitFault{"box_outside", "continue a run", "is outside of its whole"},
        KitFault{"common_key", "the registry accepts all",
                 "has a field 'lr', which is read for every optimizer"},
        KitFault{"no_such_key", "the registry accepts all", "names 'fused' in no_effect"}),
    [](const auto& info) {
      return info.param.fault + (info.param.sentence == "can_undo()" ? "_undone" : "");
    });

TEST(FaultyOptimizerItself, PassesWithoutAFault) {
  const kits::Report report = fault_report("optimizer", "", kit_options({2}));
  EXPECT_TRUE(report.passed()) << report.text();
}

}  // namespace
}  // namespace heddle::tests
