// Parallelizers are chosen by their axis, with the strategy's fields and plans by name.
#include <gmock/gmock.h>

#include "setups.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

// The fields of the one parallelizer, as JSON.
std::string fields(const std::string& section, int world = 4) {
  const Setup setup = setup_of(section, world);
  if (setup.parallelizers.size() != 1) return std::to_string(setup.parallelizers.size()) + " parallelizers";
  return setup.parallelizers[0].first + " " + config::to_json(setup.parallelizers[0].second);
}

TEST(Parallelizers, AreChosenByTheirAxisWithTheStrategysFields) {
  EXPECT_EQ(fields("{tp_size: 2, sequence_parallel: true}"),
            R"(tensor {"tp_plan": null, "sequence_parallel": true, "enable_async_tensor_parallel": false})");
  EXPECT_EQ(fields("{sequence_parallel: true}"), "0 parallelizers");  // one rank of tp
  EXPECT_EQ(fields("{strategy: ddp, tp_size: 2}"),
            R"(tensor {"tp_plan": null, "sequence_parallel": false, "enable_async_tensor_parallel": false})");
}

TEST(Parallelizers, GetAPlanByItsName) {
  EXPECT_THAT(fields("{tp_size: 2, tp_plan: llama}"),
              HasSubstr(R"("tp_plan": {"model.embed_tokens": "rowwise_rep", )"));
  EXPECT_THAT(fields("{tp_size: 2, tp_plan: {lm_head: colwise}}"), HasSubstr(R"({"lm_head": "colwise"})"));
}

TEST(Parallelizers, RefuseAPlanThatNobodyOffers) {
  EXPECT_EQ(
      refusal("{tp_size: 2, tp_plan: lama}", 4),
      "error[config] run.yaml:1 distributed.tp_plan: Custom parallel plan 'lama' is not valid. Please "
      "ensure it is one of the following:\n1. A map of module paths to parallel styles\n2. The name of a "
      "plan that a plugin offers (llama)\n  hint: did you mean 'llama'?");
  EXPECT_THAT(refusal("{tp_size: 2, tp_plan: my.package.make_plan}", 4),
              HasSubstr("hint: heddle has no Python: write a function's plan as a map"));
  EXPECT_EQ(refusal("{tp_plan: my.package.make_plan}", 4), "");  // at tp 1 nothing is planned
}

TEST(Parallelizers, OverlapNeedsSequenceParallelism) {
  EXPECT_EQ(sentence("{tp_size: 2, enable_async_tensor_parallel: true}", 4),
            "enable_async_tensor_parallel=True requires sequence_parallel=True");
  EXPECT_EQ(sentence("{enable_async_tensor_parallel: true}", 4), "");
}

TEST(Parallelizers, OfTwoPluginsForOneAxisAreRefused) {
  PluginRegistry plugins({std::filesystem::path(HEDDLE_BINARY_DIR) / "plugins"});
  plugins.load(HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_splits_tp.so");
  const auto validated = [&](const std::string& section) {
    return thrown_by([&] {
      engine::validate(config::read_text("distributed: " + section + "\n", "run.yaml"), plugins, 4);
    });
  };
  EXPECT_THAT(
      validated("{tp_size: 2}"),
      HasSubstr("error[plugin_conflict] distributed.tp_size: two plugins split the axis tp: 'second' and "
                "'tensor'"));
  EXPECT_EQ(validated("{}"), "");
}

TEST(Parallelizers, KnowThePlansOfEveryPlugin) {
  PluginRegistry plugins({std::filesystem::path(HEDDLE_BINARY_DIR) / "plugins"});
  plugins.load(HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_splits_tp.so");
  ASSERT_NE(plugins.plan("seconds"), nullptr);
  EXPECT_EQ(config::to_json(plugins.plan("SECONDS")->resolve(Node::map({})).values),
            R"({"a.*.b": "colwise"})");
  EXPECT_EQ(plugins.plan("thirds"), nullptr);
}

}  // namespace
}  // namespace heddle::tests
