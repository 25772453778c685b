// The kits of optimizers refuse each fault of tests/bad_plugins/faults/optimizer.cpp by the sentence that it
// breaks.
#include "plugins/together/kit_faults.h"

namespace heddle::tests {
namespace {

INSTANTIATE_TEST_SUITE_P(
    Optimizers, RefusedFault,
    ::testing::ValuesIn(faults_of(
        "optimizer", Tried::always,
        {{"state_on_cpu", "meta in a dry world", "a state tensor of meta weights is not on meta"},
         {"forgets_state", "values copied into it continue",
          "the weight 'embed_tokens.weight' has other bits"},
         {"forgets_state", "can_undo()", "one update after another was taken back"},
         {"decays_without_gradient", "whose gradient is undefined", "and its weight changes"},
         {"ignores_skip", "nothing changes where skip is 1", "has other bits"},
         {"ignores_divisor", "divided by the divisor", "has other bits"},
         {"ignores_groups", "lr_mult and wd_mult of a group", "has lr_mult 0, and changes"},
         {"squares_lr_mult", "lr_mult and wd_mult of a group", "has lr_mult 2, and other bits"},
         {"ignores_wd_mult", "lr_mult and wd_mult of a group", "has wd_mult 2, and other bits"},
         {"ignores_weight_decay", "update(): weight_decay", "weight_decay changes no weight"},
         {"hides_a_count", "can_undo(): copies", "one update after another was taken back"},
         {"communicates", "can_undo(): update() does not communicate",
          "can_undo() is true, and update() communicates"},
         {"norm_of_the_shard", "does not depend on the split", "differs from one rank's by "},
         {"dot_in_name", "continue a run", "has an empty name or a dot"},
         {"state_twice", "continue a run", "the state 'buffer' of 'embed_tokens.weight' is given twice"},
         {"takes_master", "continue a run", "the name of the engine's master copies"},
         {"box_outside", "continue a run", "is outside of its whole"},
         {"common_key", "the registry accepts all", "has a field 'lr', which is read for every optimizer"},
         {"no_such_key", "the registry accepts all", "names 'fused' in no_effect"}})),
    name_of_fault);

TEST(FaultyOptimizerItself, PassesWithoutAFault) {
  const kits::Report report = fault_report("optimizer", "", kit_options({2}));
  EXPECT_TRUE(report.passed()) << report.text();
}

}  // namespace
}  // namespace heddle::tests
