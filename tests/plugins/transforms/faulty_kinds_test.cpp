// The kits refuse each fault of a transform and of metrics by the sentence that it breaks.
#include "plugins/kit_faults.h"

namespace heddle::tests {
namespace {

struct Fault {
  std::string plugin, fault, sentence, detail;
};

class FaultyKind : public ::testing::TestWithParam<Fault> {};

TEST_P(FaultyKind, IsRefusedByTheKitOfTheSentence) {
  expect_refused(fault_report(GetParam().plugin, GetParam().fault), GetParam());
}

constexpr const char* kSays = "freezes and adds what it says";
constexpr const char* kUnnamed =
    "it writes 'faulty.txt' in the run's directory, and OfferedMetrics::outputs does not name it";

INSTANTIATE_TEST_SUITE_P(
    Kinds, FaultyKind,
    ::testing::Values(
        Fault{"transform", "freezes_in_silence", kSays,
              "the plugin 'faulty_transform' 0.1.0 breaks a rule of ITransform::apply(): it froze '"},
        Fault{"transform", "adds_in_silence", kSays,
              "it added the parameter 'faulty_scale.weight' and does not say so"},
        Fault{"transform", "says_more", kSays,
              "it says that it froze 'model.embed_tokens.weight', which trains"},
        Fault{"transform", "changes_a_dtype", kSays,
              "it changed the shape or the dtype of 'model.embed_tokens.weight'"},
        Fault{"transform", "derives_from_nothing", kSays,
              "it derives 'faulty_scale.weight' from 'no.weight', and one of them is not there"},
        Fault{"transform", "throws", kSays,
              "the plugin 'faulty_transform' 0.1.0 threw while it changed the model: no plan"},
        Fault{"transform", "other_each_time", "the same for every call", "the second time"},
        Fault{"transform", "skips_meta", "on meta and with values", "with values"},
        Fault{"transform", "changes_values", "changes no value", "it changed values of 'model."},
        Fault{"transform", "forgets_its_weight", "gradients reach what trains",
              "'faulty_scale.weight' trains, and no gradient reaches it"},
        Fault{"transform", "draws_at_random", "trains with a split backward", "differs"},
        Fault{"transform", "seam_throws", "trains with tp_size: 2",
              "the plugin 'faulty_transform' 0.1.0 threw while it ran in its seam before 'lm_head': no table "
              "of scales"},
        Fault{"metrics", "throws", "takes steps and validations",
              "the plugin 'faulty_metrics' 0.1.0 threw while it took a record of metrics: no table"},
        Fault{"metrics", "keeps_back", "is in a file when it returns",
              "the record of step 0 is not in a file"},
        Fault{"metrics", "overwrites", "keeps what is there", "has other bytes, or is gone"},
        Fault{"metrics", "names_no_file", "names each file that is written", kUnnamed},
        Fault{"metrics", "names_another_file", "names each file that is written", kUnnamed},
        Fault{"metrics", "knows_no_file", "names each file that is written",
              "MetricsOutput::is_own does not know 'faulty.txt', which it wrote itself"}),
    [](const auto& info) { return info.param.plugin + "_" + info.param.fault; });

TEST(FaultyKinds, PassWithoutAFault) {
  for (const std::string plugin : {"transform", "metrics"}) {
    const kits::Report report = fault_report(plugin, "");
    EXPECT_TRUE(report.passed()) << report.text();
  }
}

}  // namespace
}  // namespace heddle::tests
