// Sizes of axes for a world size: inference, and the mesh of each strategy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/engine/setups.h"

namespace heddle {
namespace {

using namespace tests;

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
  EXPECT_EQ(printed("{ep_size: 4, tp_size: 2}", 8, "sizes.ep_shard"), "2");  // tensor ranks are included
}

TEST(MeshSizes, DivideTheWorldByAxesThatExistOnlyWhenUsed) {
  EXPECT_EQ(mesh("{strategy: ddp}", 8), R"({"axes": ["dp"], "shape": [8]})");
  EXPECT_EQ(mesh("{strategy: ddp, tp_size: 2}", 8), R"({"axes": ["dp", "tp"], "shape": [4, 2]})");
  EXPECT_EQ(mesh("{strategy: ddp, tp_size: 2, pp_size: 2, pipeline: {}}", 8),
            R"({"axes": ["pp", "dp", "tp"], "shape": [2, 2, 2]})");
}

TEST(MeshSizes, ReportNoBuiltDegreeAsNotBuilt) {
  EXPECT_TRUE(setup_of("{ep_size: 2, activation_checkpointing: selective}", 4).not_built.empty());
  EXPECT_TRUE(setup_of("{cp_size: 2}", 4).not_built.empty());
  EXPECT_TRUE(setup_of("{}", 4).not_built.empty());
  EXPECT_TRUE(setup_of("{activation_checkpointing: full}", 4).not_built.empty());
  EXPECT_TRUE(setup_of("{dp_replicate_size: 2}", 4).not_built.empty());
  EXPECT_TRUE(setup_of("{tp_size: 2, sequence_parallel: true}", 4).not_built.empty());
}

TEST(ActivationCheckpointing, AcceptsAllLayersOrTheLanguageModelAndRefusesTowers) {
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
