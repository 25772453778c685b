// The keys of `distributed:` that core reads: strategy, sizes, activation checkpointing, dist_env.
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

TEST(Distributed, RefusesASectionThatIsNoMap) {
  EXPECT_EQ(refusal("5"), "error[config] run.yaml:1 distributed: expected a map, got 5");
  EXPECT_EQ(refusal("[a]"), "error[config] run.yaml:1 distributed: expected a map, got a list");
  EXPECT_EQ(thrown_by([] { whole("- 1\n", 1); }),
            "error[config] run.yaml:1: expected a map of sections, got a list");
}

TEST(Distributed, StrategiesAnswerToTheirAliasesInAnyCase) {
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

TEST(Distributed, ListsStrategiesWhenOneIsUnknown) {
  EXPECT_EQ(sentence("{strategy: foo}"),
            "Unknown strategy: foo. Valid strategies: ['ddp', 'fsdp2', 'megatron', 'megatron-fsdp', "
            "'megatron_fsdp', "
            "'mfsdp']");
  EXPECT_THAT(refusal("\n  strategy: FSDP3"),
              HasSubstr("error[plugin_missing] run.yaml:2 distributed.strategy: Unknown "
                        "strategy: fsdp3. Valid strategies: ["));
  EXPECT_THAT(refusal("{strategy: fsdp3}"), HasSubstr("hint: did you mean 'fsdp2'? 'single' is built in"));
  EXPECT_THAT(sentence("{strategy: 'ddp '}"), HasSubstr("Unknown strategy: ddp ."));
  EXPECT_THAT(sentence("{strategy: ''}"), HasSubstr("Unknown strategy: ."));
}

TEST(Distributed, RefusesAStrategyThatIsNoWord) {
  EXPECT_EQ(refusal("{strategy: 2}"),
            "error[config] run.yaml:1 distributed.strategy: strategy must be a word or null, got 2");
  EXPECT_EQ(sentence("{strategy: [ddp]}"), "strategy must be a word or null, got a list");
  EXPECT_EQ(sentence("{strategy: yes}"), "strategy must be a word or null, got true");
}

TEST(Distributed, UnknownOptionsAreListedInOrderWithTheNearestKey) {
  EXPECT_EQ(refusal("\n  strategy: fsdp2\n  bogus: 1"),
            "error[config] run.yaml:3 distributed.bogus: Unknown options for strategy 'fsdp2': ['bogus']\n"
            "  hint: `heddle plugins inspect fsdp2` prints the keys");
  EXPECT_EQ(refusal("{zap: 1, tp_sise: 2}"),
            "error[config] run.yaml:1 distributed.tp_sise: Unknown options for strategy "
            "'fsdp2': ['tp_sise', 'zap']\n  hint: did you mean 'tp_size'?");
  EXPECT_THAT(refusal("{pipelin: {}}"), HasSubstr("did you mean 'pipeline'?"));
  EXPECT_THAT(refusal("{reshard_after_forwards: true}"), HasSubstr("did you mean 'reshard_after_forward'?"));
  EXPECT_EQ(sentence("{strategy: MFSDP, bogus: 1}"), "Unknown options for strategy 'mfsdp': ['bogus']");
}

TEST(Distributed, BackendAndFlatShardingKeysAreUnknownOptions) {
  for (const char* strategy : {"fsdp2", "ddp", "megatron_fsdp"}) {
    const std::string name = strategy;
    EXPECT_EQ(sentence("{strategy: " + name + ", backend: nccl}"),
              "Unknown options for strategy '" + name + "': ['backend']");
  }
  EXPECT_EQ(sentence("{cp_vision_frame_sharding: {}}"),
            "Unknown options for strategy 'fsdp2': ['cp_vision_frame_sharding']");
  EXPECT_EQ(sentence("{frozen_multimodal_sharding: root}"),
            "Unknown options for strategy 'fsdp2': ['frozen_multimodal_sharding']");
  for (const char* strategy : {"ddp", "megatron_fsdp"})
    EXPECT_EQ(sentence("{strategy: " + std::string(strategy) + ", sequence_parallel: false}"),
              "Unknown options for strategy '" + std::string(strategy) + "': ['sequence_parallel']");
}

TEST(Distributed, HydraKeysChooseNothing) {
  for (const char* target :
       {"FSDP2Config", "nemo_automodel.components.distributed.fsdp2.FSDP2Manager", "null"})
    EXPECT_THAT(
        setup_of("{_target_: " + std::string(target) + ", _recursive_: false, _convert_: all}", 2).warnings,
        testing::IsEmpty());
  const heddle::Setup other = setup_of("{_target_: a.b.MegatronFSDPConfig}", 2);
  EXPECT_EQ(other.strategy, "fsdp2");
  EXPECT_THAT(
      other.warnings,
      testing::ElementsAre("distributed._target_ names megatron_fsdp and chooses nothing: the strategy "
                           "is fsdp2; write strategy: megatron_fsdp if that is meant"));
}

TEST(Distributed, RefusesHydraKeysThatNameNothingKnown) {
  EXPECT_EQ(
      refusal("{_target_: my_trainer.Manager}"),
      "error[config] run.yaml:1 distributed._target_: unknown component 'my_trainer.Manager'; here it names "
      "a strategy and Config or Manager, and the strategies are ddp, fsdp2, megatron, megatron-fsdp, "
      "megatron_fsdp, mfsdp\n  hint: leave _target_ out: the key strategy chooses");
  EXPECT_THAT(refusal("{_target_: 5}"), HasSubstr("expected a word, got 5"));
  EXPECT_THAT(refusal("{_recursive_: perhaps}"), HasSubstr("expected true or false, got 'perhaps'"));
  EXPECT_THAT(refusal("{_convert_: some}"),
              HasSubstr("expected one of none, partial, object, all, got 'some'"));
}

TEST(Distributed, RefusesSizesWhoseProductIsBeyondANumber) {
  const std::string most = "2147483647";
  EXPECT_THAT(refusal("{tp_size: " + most + ", pp_size: " + most + ", cp_size: " + most + ", pipeline: {}}"),
              HasSubstr("(2147483647 * 2147483647 * 2147483647 = 9223372036854775807)"));
  EXPECT_THAT(refusal("{tp_size: 1073741824, pp_size: 1073741824, cp_size: 16, pipeline: {}}"),
              HasSubstr("world_size (8) must be divisible by"));
  EXPECT_THAT(refusal("{dp_size: " + most + ", tp_size: " + most + ", cp_size: " + most + "}"),
              HasSubstr("must be world_size (8)"));
}

TEST(Distributed, SizesThatAreNullZeroOrNegativeActAsOne) {
  for (const char* key : {"tp_size", "pp_size", "cp_size", "ep_size", "dp_replicate_size"})
    for (const char* value : {"null", "none", "0", "-3", "1", "\"1\"", "0b1"}) {
      const heddle::Setup setup = setup_of("{" + std::string(key) + ": " + value + "}", 8);
      EXPECT_EQ(setup.sizes.dp_shard, 8) << key << ": " << value;
    }
  for (const char* value : {"null", "none", "0", "-1"})
    EXPECT_EQ(setup_of("{dp_size: " + std::string(value) + "}", 8).sizes.dp, 8);
}

TEST(Distributed, SizesAreReadAsRecipesReadThem) {
  for (const char* value : {"2", "\"2\"", "0x2", "'0x2'", "0b10", "0o2", "002", "\" 2\"", "+2"})
    EXPECT_EQ(setup_of("{tp_size: " + std::string(value) + "}", 8).sizes.tp, 2) << value;
  EXPECT_EQ(setup_of("{tp_size: 010}", 8).sizes.tp, 8);
  EXPECT_EQ(setup_of("{tp_size: 1:00}", 60).sizes.tp, 60);
}

TEST(Distributed, SizesThatAreNoIntegersAreRefused) {
  for (const char* key : {"tp_size", "pp_size", "cp_size", "ep_size", "dp_size", "dp_replicate_size"})
    for (const auto& [value, shown] : {std::pair("two", "'two'"),
                                       {"[2]", "a list"},
                                       {"2.0", "2.0"},
                                       {"yes", "true"},
                                       {"1e3", "1000.0"},
                                       {"{}", "an empty map"}})
      EXPECT_EQ(refusal("{" + std::string(key) + ": " + value + "}"),
                "error[config] run.yaml:1 distributed." + std::string(key) + ": " + key +
                    " must be an integer or null, got " + shown);
  EXPECT_EQ(sentence("{tp_size: 4294967296}"), "tp_size is too large: 4294967296");
}

TEST(ActivationCheckpointing, WordsOfRecipes) {
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

TEST(ActivationCheckpointing, RefusesEverythingElse) {
  for (const char* word : {"bogus", "1", "0", "\"1\"", "''", "[]", "{}", "[full]", "1.0"})
    EXPECT_EQ(
        sentence("{activation_checkpointing: " + std::string(word) + "}"),
        "distributed.activation_checkpointing must be a boolean or one of 'full', 'selective', 'false'.")
        << word;
}

TEST(ActivationCheckpointing, SelectiveIsForTheStrategiesThatCan) {
  for (const char* strategy : {"megatron_fsdp", "megatron"})
    EXPECT_EQ(sentence("{strategy: " + std::string(strategy) + ", activation_checkpointing: selective}"),
              "selective activation checkpointing is supported only for ddp and fsdp2 configs.");
  EXPECT_EQ(refusal("{strategy: ddp, activation_checkpointing: selective}", 2), "");
}

TEST(ActivationCheckpointing, IsPrintedBesideTheStrategyAndNotInIt) {
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

TEST(Environment, ChecksTheProcessGroup) {
  const auto refused = [](const std::string& yaml) {
    return thrown_by([&] { whole("dist_env: " + yaml + "\n", 1); });
  };
  EXPECT_EQ(refused("{backend: glo}"),
            "error[config] run.yaml:1 dist_env.backend: expected one of gloo, nccl, got 'glo'\n"
            "  hint: did you mean 'gloo'?");
  EXPECT_EQ(refused("{backend: 3}"), "error[config] run.yaml:1 dist_env.backend: expected a word, got 3");
  EXPECT_EQ(refused("{timeout_minutes: soon}"),
            "error[config] run.yaml:1 dist_env.timeout_minutes: expected a number, got 'soon'");
  EXPECT_EQ(refused("{timeout_minutes: 0}"),
            "error[config] run.yaml:1 dist_env.timeout_minutes: timeout_minutes must be above 0");
  for (const char* minutes : {"1e15", "525601", "0.0001"})
    EXPECT_EQ(refused("{timeout_minutes: " + std::string(minutes) + "}"),
              "error[config] run.yaml:1 dist_env.timeout_minutes: timeout_minutes must be from 0.001 to "
              "525600 (a year)");
  EXPECT_EQ(refused("{timeout: 3}"),
            "error[config] run.yaml:1 dist_env.timeout: unknown key 'timeout'\n"
            "  hint: the keys are backend, timeout_minutes, heartbeat_seconds");
  EXPECT_EQ(refused("3"), "error[config] run.yaml:1 dist_env: expected a map, got 3");
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

TEST(Distributed, RefusesAWorldWithoutRanks) {
  EXPECT_EQ(refusal("{}", 0), "error[usage] world size: expected at least 1, got 0");
}

}  // namespace
}  // namespace heddle
