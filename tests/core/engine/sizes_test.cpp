// Sizes against a world of ranks: inference, the mesh of each strategy, and every refusal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/engine/setups.h"

namespace heddle {
namespace {

using namespace tests;
using testing::HasSubstr;

std::string mesh(const std::string& section, int world) {
  return printed(section, world, "mesh");
}
std::string fsdp2_mesh(const std::string& shape) {
  return R"({"axes": ["pp", "dp_replicate", "dp_shard", "cp", "tp"], "shape": )" + shape + "}";
}

TEST(MeshSizes, AreDerivedForFsdp2) {
  EXPECT_EQ(mesh("{tp_size: 2}", 8), fsdp2_mesh("[1, 1, 4, 1, 2]"));
  EXPECT_EQ(mesh("{dp_replicate_size: 2}", 8), fsdp2_mesh("[1, 2, 4, 1, 1]"));
  EXPECT_EQ(mesh("{pp_size: 2, cp_size: 2, pipeline: {}}", 8), fsdp2_mesh("[2, 1, 2, 2, 1]"));
  EXPECT_EQ(mesh("{dp_size: 4, tp_size: 2}", 8), fsdp2_mesh("[1, 1, 4, 1, 2]"));
  EXPECT_EQ(mesh("{}", 1), fsdp2_mesh("[1, 1, 1, 1, 1]"));
}

TEST(MeshSizes, AreDerivedForOtherStrategies) {
  EXPECT_EQ(mesh("{strategy: ddp}", 4), R"({"axes": ["dp"], "shape": [4]})");
  EXPECT_EQ(mesh("{strategy: mfsdp, tp_size: 2, cp_size: 2}", 8),
            R"({"axes": ["dp", "cp", "tp"], "shape": [2, 2, 2]})");
}

TEST(MeshSizes, ArePrintedInFull) {
  EXPECT_EQ(
      printed("{dp_replicate_size: 2, tp_size: 2}", 8, "sizes"),
      R"({"pp": 1, "dp": 4, "dp_replicate": 2, "dp_shard": 2, "cp": 1, "tp": 2, "ep": 1, "ep_shard": 1})");
  EXPECT_EQ(
      printed("{strategy: ddp}", 4, "sizes"),
      R"({"pp": 1, "dp": 4, "dp_replicate": 1, "dp_shard": 4, "cp": 1, "tp": 1, "ep": 1, "ep_shard": 1})");
}

TEST(MeshSizes, AreDerivedForExperts) {
  EXPECT_EQ(printed("{ep_size: 4}", 8, "sizes.ep_shard"), "2");
  EXPECT_EQ(printed("{ep_size: 8}", 8, "sizes.ep_shard"), "1");
  EXPECT_EQ(printed("{ep_size: 4, pp_size: 2, pipeline: {}}", 8, "sizes.ep_shard"), "1");
  EXPECT_EQ(printed("{ep_size: 4, tp_size: 2}", 8, "sizes.ep_shard"), "2");  // tensor ranks count too
}

TEST(MeshSizes, MustDivideTheWorldSize) {
  EXPECT_EQ(
      refusal("\n  tp_size: 4", 6),
      "error[mesh] run.yaml:2 distributed.tp_size: world_size (6) must be divisible by (tp_size * "
      "cp_size * pp_size) "
      "(4 * 1 * 1 = 4)\n  hint: one copy of the model takes 4 ranks here: start a multiple of 4 ranks, or "
      "lower tp_size or cp_size or pp_size until their product divides 6");
  EXPECT_EQ(sentence("{strategy: mfsdp, tp_size: 2, cp_size: 2}", 6),
            "world_size (6) must be divisible by (tp_size * cp_size) (2 * 2 = 4)");
  EXPECT_EQ(sentence("{tp_size: 16}", 8),
            "world_size (8) must be divisible by (tp_size * cp_size * pp_size) (16 * 1 * 1 = 16)");
  EXPECT_EQ(
      sentence("{tp_size: 2147483647, cp_size: 2147483647}", 8),
      "world_size (8) must be divisible by (tp_size * cp_size * pp_size) (2147483647 * 2147483647 * 1 = "
      "4611686014132420609)");
}

TEST(MeshSizes, ReplicasMustFitIntoDataParallelism) {
  EXPECT_THAT(sentence("{dp_replicate_size: 3}", 4),
              HasSubstr("dp_size must be a multiple of dp_replicate_size"));
  EXPECT_EQ(sentence("{dp_replicate_size: 4}", 4),
            "dp_replicate_size=4 must be less than dp_size=4 since DDP usecase is not supported by FSDP2");
  EXPECT_EQ(sentence("{dp_replicate_size: 1}", 4), "");
  EXPECT_EQ(sentence("{dp_replicate_size: 1}", 1), "");
}

TEST(MeshSizes, ExpertsMustFitIntoAStage) {
  EXPECT_EQ(sentence("{ep_size: 3}", 8), "non_pp_size=8 must be a multiple of ep_size=3");
  EXPECT_EQ(sentence("{ep_size: 8, pp_size: 2, pipeline: {}}", 8),
            "non_pp_size=4 must be a multiple of ep_size=8");
}

TEST(MeshSizes, RefuseAProductThatIsNotTheWorldSize) {
  EXPECT_EQ(refusal("{dp_size: 2, tp_size: 2}", 8),
            "error[mesh] run.yaml:1 distributed.dp_size: dp_size * tp_size * cp_size * pp_size must be "
            "world_size (8), but 2 "
            "* 2 * 1 * 1 = 4\n  hint: leave dp_size out: it is found from the number of ranks");
  EXPECT_EQ(sentence("{strategy: mfsdp, dp_size: 16}", 8),
            "dp_size * tp_size * cp_size must be world_size (8), but 16 * 1 * 1 = 16");
  EXPECT_EQ(sentence("{strategy: ddp, dp_size: 3}", 8), "");  // data parallelism alone takes the world
}

TEST(MeshSizes, AxesThatStandOnlyWhenUsedShareTheWorldThen) {
  EXPECT_EQ(mesh("{strategy: ddp}", 8), R"({"axes": ["dp"], "shape": [8]})");
  EXPECT_EQ(mesh("{strategy: ddp, tp_size: 2}", 8), R"({"axes": ["dp", "tp"], "shape": [4, 2]})");
  EXPECT_EQ(mesh("{strategy: ddp, tp_size: 2, pp_size: 2, pipeline: {}}", 8),
            R"({"axes": ["pp", "dp", "tp"], "shape": [2, 2, 2]})");
  EXPECT_EQ(sentence("{strategy: ddp, tp_size: 3}", 8),
            "world_size (8) must be divisible by (tp_size) (3 = 3)");
  EXPECT_EQ(sentence("{strategy: ddp, tp_size: 2, dp_size: 3}", 8),
            "dp_size * tp_size must be world_size (8), but 3 * 2 = 6");
}

TEST(MeshSizes, AreRefusedByEachStrategyThatCannot) {
  EXPECT_EQ(sentence("{strategy: ddp, tp_size: 2, cp_size: 2}"), "ddp does not support context parallelism");
  EXPECT_EQ(sentence("{strategy: ddp, cp_size: 2, ep_size: 2}"), "ddp does not support context parallelism");
  EXPECT_EQ(sentence("{strategy: ddp, ep_size: 3}", 8), "non_pp_size=8 must be a multiple of ep_size=3");
  EXPECT_EQ(sentence("{strategy: mfsdp, pp_size: 2, pipeline: {}, ep_size: 2}"),
            "megatron_fsdp does not support pipeline parallelism");
  for (const char* strategy : {"ddp", "mfsdp", "megatron", "fsdp2"})
    EXPECT_EQ(sentence("{strategy: " + std::string(strategy) + ", ep_size: 2}", 8), "");
}

TEST(MeshSizes, ReplicasAreOnlyForStrategiesThatHaveThem) {
  for (const char* strategy : {"ddp", "mfsdp"})
    EXPECT_EQ(sentence("{strategy: " + std::string(strategy) + ", dp_replicate_size: 2, tp_size: 2}"),
              "dp_replicate_size is only supported with fsdp2 or megatron");
  EXPECT_EQ(sentence("{strategy: ddp, dp_replicate_size: 1}"), "");
}

TEST(MeshSizes, AreCheckedAfterTheWords) {
  EXPECT_THAT(sentence("{strategy: ddp, pp_size: 2}"),
              HasSubstr("no `distributed.pipeline` block was provided"));
  EXPECT_THAT(sentence("{strategy: mfsdp, pp_size: 2}"),
              HasSubstr("no `distributed.pipeline` block was provided"));
  EXPECT_THAT(sentence("{tp_size: 3, bogus: 1}"), HasSubstr("Unknown options"));
}

TEST(MeshSizes, DegreesThatAreBuiltAreNotNamedAsNotBuilt) {
  EXPECT_TRUE(setup_of("{ep_size: 2, activation_checkpointing: selective}", 4).not_built.empty());
  EXPECT_TRUE(setup_of("{cp_size: 2}", 4).not_built.empty());
  EXPECT_TRUE(setup_of("{}", 4).not_built.empty());
  EXPECT_TRUE(setup_of("{activation_checkpointing: full}", 4).not_built.empty());
  EXPECT_TRUE(setup_of("{dp_replicate_size: 2}", 4).not_built.empty());
  EXPECT_TRUE(setup_of("{tp_size: 2, sequence_parallel: true}", 4).not_built.empty());
}

TEST(ActivationCheckpointing, TakesAllLayersOrTheLanguageModelAndRefusesTowers) {
  for (const char* strategy : {"ddp", "fsdp2"}) {
    const auto lines = [&](const std::string& scope) {
      return setup_of("{strategy: " + std::string(strategy) +
                          ", activation_checkpointing: full, activation_checkpointing_scope: " + scope + "}",
                      2)
          .not_built;
    };
    EXPECT_TRUE(lines("all").empty());
    EXPECT_TRUE(lines("language").empty());
    for (const char* towers : {"vision", "audio", "multimodal", "[language, vision]"})
      EXPECT_THAT(lines(towers),
                  testing::ElementsAre("distributed.activation_checkpointing_scope: models with "
                                       "vision or audio towers are not built yet"))
          << towers;
  }
}

}  // namespace
}  // namespace heddle
