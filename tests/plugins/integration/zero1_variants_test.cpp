// Conformance kits on a correct ZeRO-1 and on its broken variants (tests/bad_plugins/zero1). The kit whose
// rule a variant violates refuses it.
#include "plugins/integration/kit_faults.h"
#include "tests/main/with_all.h"

namespace heddle::tests {

using kits::Check;
using kits::Report;
namespace {

HEDDLE_WITH_ALL("Variants/RefusedFault*:Zero1.Passes*:Zero1.*IfItLoops");

using ::testing::HasSubstr;

TEST(Zero1, PassesEveryKitWithUnevenSizes) {
  const Report report = bad_plugin_report("zero1_none", kit_options({1, 2, 3}));
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_GT(report.checks.size(), 60u);
  for (const Check& check : report.checks) {  // rules that it does not promise
    const bool promised = check.rule.find("may_use") == std::string::npos &&
                          check.rule.find("dp_replicate") == std::string::npos;
    EXPECT_EQ(check.ran, promised) << check.text();
  }
}

const std::string kThrew = "the plugin 'zero1_";

INSTANTIATE_TEST_SUITE_P(
    Variants, RefusedFault,
    ::testing::ValuesIn(faults_of(
        "zero1", Tried::always,
        {{"tied_twice", "owned(): a tied parameter once", "'first.weight'"},
         {"unused_gets_zero", "undefined where no rank had one", "should not be"},
         {"unused_not_agreed", "undefined where no rank had one", "is on no rank"},
         {"frozen_trains", "requires no gradient gets none", "'layer.0.weight'"},
         {"foreign_replaced", "a foreign slot is changed in place", "'"},
         {"empty_shard_crashes", "empty shards are listed too", kThrew},
         {"empty_not_listed", "empty shards are listed too", "is not listed on rank", true, 3},
         {"owns_nothing_throws", "one rank may own everything", "a buffer of 0 bytes"},
         {"averages", "the sum over the data-parallel ranks", "differs in the gradients"},
         {"last_forgotten", "the sum over the data-parallel ranks", "differs in the gradients"},
         {"bucket_forgotten", "gradients of several buckets", "differ"},
         {"order_differs", "gradients of several buckets", "reduce_scatter"},
         {"drain_ignored", "before the last drain", "is missing in the gradients"},
         {"first_hook_counts", "recomputed in the backward", "differs in the gradients"},
         {"evaluation_counts", "an evaluation between two steps changes nothing", "differs in the gradients"},
         {"whole_is_part", "hold_whole()", "gives a part ["},
         {"change_ignored", "a checkpoint's values", "does not use the initial values"},
         {"first_ranks_kept", "can be read by another number of ranks", "'"},
         {"needs_hints", "completes everything by itself", "is missing in the gradients"},
         {"needs_unshard", "completes everything by itself", "parameters are not gathered"},
         {"gradient_is_view", "the sum over the data-parallel ranks", "is an autograd view"},
         {"offset_wrong", "owned(): a tied parameter once", "some by no rank"},
         {"axes_missing", "Shard::axes", "'"},
         {"remainder_lost", "core sets each element once", "owned by no rank"},
         {"gradients_pile_up", "the sum over the data-parallel ranks", "differs in the gradients of step 1"},
         {"parts_unplaced", "with tensor parallelism", ", and the parameter has ["},
         {"values_of_each_rank", "those of the first data-parallel rank",
          "ranks that should hold the same numbers hold different ones"},
         {"last_microbatch_only", "the sum over the data-parallel ranks", "differs in the gradients"},
         {"mean_of_microbatches", "the sum over the data-parallel ranks", "differs in the gradients"},
         {"frozen_drifts", "requires no gradient gets none and keeps its value", "differs"},
         {"stale_every_second", "the sum over the data-parallel ranks", "differs"},
         {"sums_are_rounded", "the sum over the data-parallel ranks", "differs in the gradients"},
         {"values_are_rounded", "the sum over the data-parallel ranks", "differs"},
         {"reads_before_wait", "the sum over the data-parallel ranks", "differs in the gradients"},
         {"waits_twice", "the sum over the data-parallel ranks", "wait() was called twice"},
         {"divisor_wrong", "the sum over the data-parallel ranks", "differs in the gradients"},
         {"release_loses", "hold_whole()", "of step 1 differs by"},
         {"axes_too_many", "requires no gradient gets none", "some are owned more than once"},
         {"names_changed", "owned(): this rank's shards", "'"},
         {"extra_lost", "undefined where no rank had one", "the loss of step 0 differs"},
         {"clips_gradients", "the sum over the data-parallel ranks", "differs in the gradients"},
         {"owned_is_a_copy", "core sets each element once", "the loss of step 0 differs by"},
         {"needs_change", "needs() depends only on the fields", "needs() differs between two strategies"},
         {"promises_restart", "may_use: post_validation", "cannot begin anew, which post-validation needs"},
         {"dies_in_second_step", "the sum over the data-parallel ranks",
          kThrew + "dies_in_second_step' 0.1.0 threw while it ran forward() of its stage or of a unit: "
                   "the buffers of the last step"},
         {"work_dropped", "the sum over the data-parallel ranks", "was dropped without wait()"},
         {"throws_in_forward", "the sum over the data-parallel ranks",
          kThrew + "throws_in_forward' 0.1.0 threw while it ran forward() of its stage or of a unit: "
                   "table of units"},
         {"throws_in_finish", "the sum over the data-parallel ranks",
          kThrew + "throws_in_finish' 0.1.0 threw while it ran finish_gradients(): no free buffer"},
         {"throws_in_owned", "owned(): this rank's shards",
          kThrew + "throws_in_owned' 0.1.0 threw while it ran owned(): the list of shards is locked"},
         {"throws_in_changed", "owned(): this rank's shards",
          kThrew + "throws_in_changed' 0.1.0 threw while it ran parameters_changed(): no stream"},
         {"throws_in_hold", "hold_whole()",
          kThrew + "throws_in_hold' 0.1.0 threw while it ran hold_whole(): nothing to hold"},
         {"throws_in_backward", "the sum over the data-parallel ranks",
          "a backward threw: no room for a gradient; it ran hooks of the strategy 'zero1'"}})),
    name_of_fault);

TEST(Zero1, IsEndedByTheTimeLimitIfItLoops) {
  const Report report = bad_plugin_report("zero1_loops_in_finish", kit_options({2}, 3));
  EXPECT_FALSE(report.passed());
  EXPECT_THAT(
      report.checks.back().detail,
      HasSubstr("it did not end within 3 s: rank 1 is in 'zero1_loops_in_finish': finish_gradients()"))
      << report.text();
}

// Ranks wait for each other in a collective for half of the time limit.
TEST(Zero1, IsRefusedIfItSkipsACollectiveInTheSecondStep) {
  const Report report = bad_plugin_report("zero1_skips_second_reduce", kit_options({2}, 6));
  EXPECT_FALSE(report.passed()) << report.text();
}

}  // namespace
}  // namespace heddle::tests
