// Keys of `distributed:` that core reads: strategy, sizes, activation checkpointing, dist_env.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/engine/setups.h"

namespace heddle {
namespace {

using namespace tests;
using testing::HasSubstr;

Setup whole(const std::string& yaml, int world) {
  return engine::validate(config::read_text(yaml, "run.yaml"), built_plugins(), world);
}

TEST(Distributed, HasDefaultsWithoutASection) {
  for (const char* yaml : {"", "seed: 1\n", "distributed:\n", "distributed: []\n", "distributed: {}\n",
                           "distributed: {strategy: null}\n", "distributed: {strategy: none}\n"}) {
    const heddle::Setup setup = whole(yaml, 4);
    EXPECT_EQ(setup.strategy, "fsdp2") << yaml;
    EXPECT_EQ(setup.sizes.dp, 4) << yaml;
    EXPECT_EQ(setup.activation_checkpointing, ActivationCheckpointing::none) << yaml;
    EXPECT_TRUE(setup.warnings.empty()) << yaml;
  }
}

TEST(Distributed, FindsStrategiesByAliasInAnyCase) {
  const std::pair<const char*, const char*> rows[] = {{"fsdp2", "fsdp2"},
                                                      {"FSDP2", "fsdp2"},
                                                      {"ddp", "ddp"},
                                                      {"DDP", "ddp"},
                                                      {"megatron_fsdp", "megatron_fsdp"},
                                                      {"megatron-fsdp", "megatron_fsdp"},
                                                      {"MFSDP", "megatron_fsdp"},
                                                      {"\"'ddp'\"", "ddp"},
                                                      {"single", "single"}};
  for (const auto& [word, name] : rows)
    EXPECT_EQ(setup_of("{strategy: " + std::string(word) + "}", 1).strategy, name);
}

TEST(Distributed, TreatsNullZeroAndNegativeSizesAsOne) {
  for (const char* key : {"tp_size", "pp_size", "cp_size", "ep_size", "dp_replicate_size"})
    for (const char* value : {"null", "none", "0", "-3", "1", "\"1\"", "0b1"}) {
      const heddle::Setup setup = setup_of("{" + std::string(key) + ": " + value + "}", 8);
      EXPECT_EQ(setup.sizes.dp_shard, 8) << key << ": " << value;
    }
  for (const char* value : {"null", "none", "0", "-1"})
    EXPECT_EQ(setup_of("{dp_size: " + std::string(value) + "}", 8).sizes.dp, 8);
}

TEST(Distributed, ReadsSizesLikeRecipes) {
  for (const char* value : {"2", "\"2\"", "0x2", "'0x2'", "0b10", "0o2", "002", "\" 2\"", "+2"})
    EXPECT_EQ(setup_of("{tp_size: " + std::string(value) + "}", 8).sizes.tp, 2) << value;
  EXPECT_EQ(setup_of("{tp_size: 010}", 8).sizes.tp, 8);
  EXPECT_EQ(setup_of("{tp_size: 1:00}", 60).sizes.tp, 60);
}

TEST(ActivationCheckpointing, ReadsTheWordsOfRecipes) {
  using enum ActivationCheckpointing;
  const std::pair<const char*, ActivationCheckpointing> rows[] = {
      {"null", none},     {"false", none},          {"no", none},
      {"off", none},      {"'OFF'", none},          {"NONE", none},
      {"disabled", none}, {"'No'", none},           {"true", full},
      {"on", full},       {"full", full},           {"Enabled", full},
      {"'YES'", full},    {"selective", selective}, {"Selective", selective}};
  for (const auto& [word, mode] : rows)
    EXPECT_EQ(setup_of("{activation_checkpointing: " + std::string(word) + "}", 1).activation_checkpointing,
              mode)
        << word;
}

TEST(ActivationCheckpointing, IsPrintedOutsideOfTheStrategy) {
  EXPECT_EQ(printed("{activation_checkpointing: true}", 1, "activation_checkpointing"), "\"full\"");
  EXPECT_EQ(printed("{activation_checkpointing: true}", 1, "strategy_config.activation_checkpointing"),
            "false");
  EXPECT_EQ(printed("{activation_checkpointing: selective}", 1, "activation_checkpointing"), "\"selective\"");
  EXPECT_EQ(printed("{}", 1, "activation_checkpointing"), "false");
}

TEST(Environment, ReadsTheProcessGroup) {
  EXPECT_EQ(whole("dist_env: {backend: gloo, timeout_minutes: 1}\n", 1).backend, "gloo");
  EXPECT_EQ(whole("dist_env: {backend: NCCL, timeout_minutes: 0.5}\n", 1).backend, "nccl");
  EXPECT_EQ(whole("dist_env: {backend: gloo, timeout_minutes: 1}\n", 1).timeout_minutes, 1.0);
  for (const char* yaml :
       {"", "dist_env:\n", "dist_env: {}\n", "dist_env: {backend: null, timeout_minutes: null}\n"}) {
    EXPECT_EQ(whole(yaml, 1).backend, "") << yaml;
    EXPECT_EQ(whole(yaml, 1).timeout_minutes, 10.0) << yaml;
  }
}

TEST(Distributed, LeavesTheConfigurationUnchanged) {
  const Node configuration =
      config::read_text("distributed: {tp_size: 2, moe: {}, mp_policy: {}}\n", "run.yaml");
  const std::string before = config::to_json(configuration);
  engine::validate(configuration, built_plugins(), 4);
  EXPECT_EQ(config::to_json(configuration), before);
}

TEST(Distributed, PrefersAnOverrideAndNamesIt) {
  const Node file = config::read_text("distributed: {tp_size: 2, dp_size: 2}\n", "run.yaml");
  const Node changed = config::with_override(file, "distributed.dp_size", "none");
  EXPECT_EQ(engine::validate(changed, built_plugins(), 8).sizes.dp, 4);
  const Node wrong = config::with_override(file, "distributed.tp_sze", "4");
  EXPECT_THAT(
      thrown_by([&] { engine::validate(wrong, built_plugins(), 8); }),
      HasSubstr("error[config] --distributed.tp_sze: Unknown options for strategy 'fsdp2': ['tp_sze']\n"
                "  hint: did you mean 'tp_size'?"));
}

}  // namespace
}  // namespace heddle
