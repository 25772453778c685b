// Conformance kits on the plugins of the build, on templates and examples, and on faulty plugins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "heddle/testing/conformance.h"
#include "tests/main/with_all.h"

namespace heddle::tests {

using namespace kits;
using kits::Check;
namespace {

HEDDLE_WITH_ALL("Examples/TemplateKits*:Strategies/KitsPass*");

using ::testing::HasSubstr;

PluginRegistry built() {
  return PluginRegistry({HEDDLE_BINARY_DIR "/plugins"});
}

std::string bad(const std::string& name) {
  return HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_" + name + ".so";
}

const Check& kit(const Report& report, const std::string& sentence) {
  for (const Check& check : report.checks)
    if (check.rule.find(sentence) != std::string::npos) return check;
  ADD_FAILURE() << "no kit '" << sentence << "' in\n" << report.text();
  return report.checks.front();
}

class KitsPass : public ::testing::TestWithParam<std::string> {};

TEST_P(KitsPass, StrategyOnRanksThatDoNotDivideTheSizes) {
  PluginRegistry plugins = built();
  const Report report = check_strategy(GetParam(), plugins, {1, 2, 3});
  EXPECT_TRUE(report.passed()) << report.text();
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, KitsPass,
    ::testing::Values(
        "strategy: ddp", "strategy: ddp, gradient_as_bucket_view: true", "strategy: fsdp2",
        "strategy: fsdp2, reshard_after_forward: false", "strategy: megatron_fsdp",
        "strategy: megatron_fsdp, zero_dp_strategy: 2, fsdp_double_buffer: true",
        "strategy: megatron_fsdp, zero_dp_strategy: 0",
        "strategy: megatron, overlap_grad_reduce: true, num_buckets: 3",
        "strategy: megatron, use_distributed_optimizer: true, overlap_grad_reduce: true, "
        "overlap_param_gather: true, num_buckets: 4",
        "strategy: megatron, use_megatron_fsdp: true, data_parallel_sharding_strategy: optim_grads_params, "
        "overlap_grad_reduce: true, overlap_param_gather: true"));

class TemplateKits : public ::testing::TestWithParam<std::string> {};

TEST_P(TemplateKits, PassWhatPluginsNewWritesAndTheExamples) {
  const Report report = check_plugin(HEDDLE_BINARY_DIR "/tests/examples/libheddle_" + GetParam() + ".so");
  EXPECT_TRUE(report.passed()) << report.text();
}

INSTANTIATE_TEST_SUITE_P(Examples, TemplateKits,
                         ::testing::Values("template_strategy", "template_sharded_strategy",
                                           "template_parallelizer", "template_schedule", "template_model",
                                           "template_optimizer", "template_transform", "template_metrics",
                                           "template_dataset", "overlapped", "looped", "balance", "acme"),
                         [](const auto& info) { return info.param; });

TEST(StrategyPage, ContainsTheCodeOfTheExample) {
  const auto text = [](const std::string& path) {
    std::ostringstream out;
    out << std::ifstream(HEDDLE_SOURCE_DIR "/" + path).rdbuf();
    return out.str();
  };
  const std::string example = text("examples/walk/overlapped.cpp"), page = text("docs/plugins/strategy.md");
  const size_t begin = example.find("[walk]\n") + 7, end = example.find("  // [/walk]");
  ASSERT_LT(begin, end);
  std::istringstream lines(example.substr(begin, end - begin));
  std::string excerpt;
  for (std::string line; std::getline(lines, line);) excerpt += (line.empty() ? line : line.substr(2)) + "\n";
  EXPECT_THAT(page, HasSubstr("```cpp\n" + excerpt + "```"))
      << "put the lines between [walk] into docs/plugins/strategy.md";
}

// Refused before the first step, with the parameter and the file.
TEST(StrategyKits, RefuseAStrategyThatOwnsATiedParameterTwice) {
  const std::string file = HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_owns_twice.so";
  EXPECT_THAT(check_plugin(file, {.ranks = {2}}).text(),
              HasSubstr("the strategy 'owns_twice' breaks a rule of ParallelStage::owned(): the shards of "));
}

// The strategy sums a gradient when its hook is called in the last backward. That may be before a drain, and
// more than once for a weight of two units.
TEST(StrategyKits, RefuseAStrategyThatReducesAtTheFirstHookCall) {
  const Report report = check_plugin(bad("hasty"), {.ranks = {2}});
  EXPECT_FALSE(kit(report, "before the last drain").passed);
  EXPECT_FALSE(kit(report, "recomputed in the backward").passed);
}

TEST(StrategyKits, RefuseAStrategyThatForgetsToSumGradients) {
  const std::string sum = "the sum over the data-parallel ranks and all microbatches";
  EXPECT_TRUE(kit(check_plugin(bad("forgets"), {.ranks = {1}}), sum).passed);
  const Check check = kit(check_plugin(bad("forgets"), {.ranks = {2}}), sum);
  EXPECT_FALSE(check.passed);
  EXPECT_EQ(check.rule, "strategy 'forgets' on 2 ranks: finish_gradients(): " + sum + " of the step");
}

TEST(StrategyKits, ReportWhyAStrategyDoesNotRun) {
  const Report report = check_plugin(bad("late"), {.ranks = {2}});
  EXPECT_FALSE(report.passed());
  EXPECT_THAT(report.text(),
              HasSubstr("the plugin 'late' 0.1.0 threw while it parallelized the model: no workspace"));
}

TEST(StrategyKits, NameAMissingStrategy) {
  PluginRegistry plugins({});
  try {
    check_strategy("strategy: nowhere", plugins, {1});
    ADD_FAILURE() << "it should throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::plugin_missing);
  }
}

TEST(ScheduleKits, RefuseAScheduleThatLosesABackward) {
  const Report report = check_plugin(bad("drops"));
  const auto& plans = kit(report, "plan(): a pure function");
  EXPECT_FALSE(plans.passed);
  EXPECT_EQ(
      plans.detail,
      "1 rank, 1 stage and 4 microbatches: rank 0, step 7: 0B3: it is missing: the row ends without it\n"
      "the table that was planned:\n"
      "rank 0: 0F0 0F1 0F2 0F3 0B0 0B1 0B2 [0B3?]");
}

TEST(ParallelizerKits, ReportAParallelizerThatSplitsNothing) {
  // The parallelizer splits nothing. Results are correct, because every rank computes the whole model.
  const Report report = check_plugin(bad("splits_tp"), {.ranks = {2}});
  EXPECT_TRUE(kit(report, "returns what it split").passed) << report.text();
}

TEST(ParallelizerKits, PassTensorParallelismOnTwoRanks) {
  const Report report = check_plugin(HEDDLE_BINARY_DIR "/plugins/libheddle_tensor.so", {.ranks = {2}});
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_TRUE(kit(report, "its seams support a split backward").ran) << report.text();
}

TEST(ParallelizerKits, PassOneThatOnlyChangesBatches) {
  const Report report = check_plugin(bad("batches"), {.ranks = {2}});
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_TRUE(kit(report, "batches, losses and metrics are equal to one rank").ran) << report.text();
}

TEST(DeviceKits, RunOnTheDeviceElseReportItsAbsence) {
  const Report report = check_plugin(bad("devices"));
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_THAT(report.text(),
              HasSubstr("--    device 'ghost': start(), wrap(): a rendezvous whose groups move its "
                        "tensors: not run: the device is not available here: this machine has none"));
  EXPECT_THAT(report.text(), HasSubstr("ok    device 'paper': start(), wrap()"));
}

TEST(FileKits, PassWhatTheRegistryAcceptsAndNameTheViolatedRule) {
  EXPECT_TRUE(check_plugin(bad("plain"), {.ranks = {}}).passed());
  const Report report = check_plugin(bad("other_torch"));
  EXPECT_FALSE(report.passed());
  ASSERT_EQ(report.checks.size(), 2u);
  EXPECT_EQ(report.checks[1].rule, "the ABI tag is this engine's");
  EXPECT_THAT(report.text(), HasSubstr("FAIL  the ABI tag is this engine's: the plugin 'other_torch' 0.1.0"));
}

TEST(Engine, RunsTwiceConcurrentlyInOneProcess) {
  Report one, two;
  std::thread other([&] {
    PluginRegistry plugins = built();
    one = check_strategy("strategy: ddp", plugins, {2});
  });
  PluginRegistry plugins = built();
  two = check_strategy("strategy: fsdp2", plugins, {2});
  other.join();
  EXPECT_TRUE(one.passed()) << one.text();
  EXPECT_TRUE(two.passed()) << two.text();
}

}  // namespace
}  // namespace heddle::tests
