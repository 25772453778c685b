// The kits refuse each fault of a transform and of metrics with the rule that it violates.
#include "plugins/integration/kit_faults.h"

namespace heddle::tests {
namespace {

constexpr const char* kSays = "freezes and adds what it says";
constexpr const char* kUnnamed =
    "it writes 'faulty.txt' in the run's directory, but OfferedMetrics::outputs does not list it";

INSTANTIATE_TEST_SUITE_P(
    Transforms, RefusedFault,
    ::testing::ValuesIn(faults_of(
        "transform", Tried::always,
        {{"freezes_in_silence", kSays,
          "the plugin 'faulty_transform' 0.1.0 breaks a rule of ITransform::apply(): it froze '"},
         {"adds_in_silence", kSays, "it added the parameter 'faulty_scale.weight' and does not say so"},
         {"says_more", kSays, "it says that it froze 'model.embed_tokens.weight', which trains"},
         {"changes_a_dtype", kSays, "it changed the shape or the dtype of 'model.embed_tokens.weight'"},
         {"derives_from_nothing", kSays,
          "it derives 'faulty_scale.weight' from 'no.weight', and one of them is not there"},
         {"throws", kSays, "the plugin 'faulty_transform' 0.1.0 threw while it changed the model: no plan"},
         {"other_each_time", "the same for every call", "the second time"},
         {"skips_meta", "on meta and with values", "with values"},
         {"changes_values", "changes no value", "it changed values of 'model."},
         {"forgets_its_weight", "gradients reach what trains",
          "'faulty_scale.weight' trains, but no gradient reaches it"},
         {"draws_values", "draws no values itself",
          "'faulty_scale.weight' has different values in a second model"},
         {"draws_first_values", "the same for every box", "has different values when a part of it is read"},
         {"draws_a_factor", "draws no values itself", "two models of the same values give the losses "},
         {"loss_counts_ignored", "labels of -100", "the loss must be the sum over the labels that count"},
         {"loss_is_a_mean", "labels of -100", "the loss must be the sum over the labels that count"},
         {"loss_overflows", "labels of -100", "logits of several thousands: the loss is "},
         {"draws_at_random", "trains with a split backward", "differs"},
         {"draws_at_random", "activation_checkpointing: full", "differs"},
         {"counts_evaluations", "an evaluation between two steps", "differs"},
         {"changes_what_it_froze", "a run does not change these parameters", "a run changed 'model."},
         {"draws_at_random", "trains under fsdp2 on 2 ranks", "differs"},
         {"mixes_tokens", "sequence_parallel", "differs"},
         {"draws_at_random", "pp_size: 2", "differs"},
         {"seam_throws", "trains with tp_size: 2",
          "the plugin 'faulty_transform' 0.1.0 threw while it ran in its seam before 'lm_head': no table "
          "of scales"}},
        0)),
    name_of_fault);

INSTANTIATE_TEST_SUITE_P(
    Metrics, RefusedFault,
    ::testing::ValuesIn(faults_of(
        "metrics", Tried::always,
        {{"throws", "takes steps and validations",
          "the plugin 'faulty_metrics' 0.1.0 threw while it took a record of metrics: no table"},
         {"keeps_back", "is in a file when it returns", "the record of step 0 is not in a file"},
         {"snapshot_not_declared", "keeps existing records",
          "set MetricsOutput::snapshot for a file that holds only the latest record"},
         {"snapshot_in_place", "MetricsOutput::snapshot",
          "'faulty.txt' is a snapshot, but was written to while a reader had it open"},
         {"snapshot_grows", "MetricsOutput::snapshot", "is a snapshot, but grows from record to record"},
         {"overwrites", "keeps existing records", "was changed or removed"},
         {"names_no_file", "lists each file that is written", kUnnamed},
         {"names_another_file", "lists each file that is written", kUnnamed},
         {"knows_no_file", "lists each file that is written",
          "MetricsOutput::is_own returns false for 'faulty.txt', which the sink wrote"}},
        0)),
    name_of_fault);

TEST(FaultyKinds, PassWithoutAFault) {
  for (const std::string plugin : {"transform", "metrics"}) {
    const kits::Report report = fault_report(plugin, "");
    EXPECT_TRUE(report.passed()) << report.text();
  }
}

TEST(FaultyMetrics, CanSkipRecordsAndReplaceTheirFile) {
  for (const char* fault : {"snapshot", "takes_every_second", "takes_validations"}) {
    const kits::Report report = fault_report("metrics", fault);
    EXPECT_TRUE(report.passed()) << fault << "\n" << report.text();
  }
}

}  // namespace
}  // namespace heddle::tests
