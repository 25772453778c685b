// The kits of optimizers refuse each fault of tests/bad_plugins/faults/optimizer.cpp with the rule that it
// violates.
#include "plugins/integration/kit_faults.h"

namespace heddle::tests {
namespace {

INSTANTIATE_TEST_SUITE_P(
    Optimizers, RefusedFault,
    ::testing::ValuesIn(faults_of(
        "optimizer", Tried::always,
        {{"state_on_cpu", "meta in a dry world", "a state tensor of meta weights is not on meta"},
         {"forgets_state", "from copied values", "the weight 'embed_tokens.weight' is not bitwise equal"},
         {"forgets_state", "can_undo()", "after an undone update and another update"},
         {"decays_without_gradient", "with an undefined gradient", "but its weight changes"},
         {"ignores_skip", "nothing changes if skip is 1", "is not bitwise equal"},
         {"ignores_divisor", "divided by the divisor", "is not bitwise equal"},
         {"ignores_groups", "lr_mult and wd_mult of a group", "has lr_mult 0, but changes"},
         {"squares_lr_mult", "lr_mult and wd_mult of a group", "has lr_mult 2, but differs"},
         {"ignores_wd_mult", "lr_mult and wd_mult of a group", "has wd_mult 2, but differs"},
         {"ignores_weight_decay", "update(): weight_decay", "weight_decay changes no weight"},
         {"hides_a_count", "can_undo(): copies", "after an undone update and another update"},
         {"communicates", "can_undo(): update() does not communicate",
          "can_undo() is true, but update() communicates"},
         {"norm_of_the_shard", "does not depend on the split", "differs from the result of one rank by "},
         {"dot_in_name", "a run continues", "has an empty name or a dot"},
         {"state_twice", "a run continues", "the state 'buffer' of 'embed_tokens.weight' is given twice"},
         {"takes_master", "a run continues", "the name of the engine's master copies"},
         {"box_outside", "a run continues", "is outside of its whole"},
         {"common_key", "the registry accepts all", "has a field 'lr', which is read for every optimizer"},
         {"registers_once", "another registry", "registered already"},
         {"no_default", "every field has a type", "the field 'momentum' lacks a type, a default or a help"},
         {"takes_any_key", "an unknown key is refused", "was accepted"},
         {"no_such_key", "the registry accepts all", "names 'fused' in no_effect"}})),
    name_of_fault);

TEST(FaultyOptimizerItself, PassesWithoutAFault) {
  const kits::Report report = fault_report("optimizer", "", kit_options({2}));
  EXPECT_TRUE(report.passed()) << report.text();
}

}  // namespace
}  // namespace heddle::tests
