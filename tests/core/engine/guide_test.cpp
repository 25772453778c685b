// Sections of the recipes' guide, and the lines that scripts read.
#include <gtest/gtest.h>

#include "tests/core/engine/setups.h"

namespace heddle {
namespace {

using namespace tests;

struct Example {
  const char* section;
  int world;
  const char* strategy;
  const char* shape;
};

class Guide : public testing::TestWithParam<Example> {};

TEST_P(Guide, IsReadUnchanged) {
  const auto& [section, world, strategy, shape] = GetParam();
  EXPECT_EQ(printed(section, world, "strategy"), "\"" + std::string(strategy) + "\"");
  EXPECT_EQ(printed(section, world, "mesh.shape"), shape);
  EXPECT_EQ(printed(section, world, "warnings"), "[]");
}

constexpr Example kExamples[] = {
    {"{strategy: fsdp2}", 8, "fsdp2", "[1, 1, 8, 1, 1]"},
    {"{strategy: fsdp2, dp_replicate_size: 2, tp_size: 2, sequence_parallel: true}", 8, "fsdp2",
     "[1, 2, 2, 1, 2]"},
    {"{strategy: fsdp2, pp_size: 4, pipeline: {pp_schedule: interleaved1f1b, pp_microbatch_size: 1, "
     "layers_per_stage: 2}}",
     8, "fsdp2", "[4, 1, 2, 1, 1]"},
    {"{strategy: fsdp2, ep_size: 8, moe: {reshard_after_forward: true}, activation_checkpointing: selective}",
     8, "fsdp2", "[1, 1, 8, 1, 1]"},
    {"{strategy: megatron_fsdp, zero_dp_strategy: 2, overlap_param_gather: false}", 8, "megatron_fsdp",
     "[8, 1, 1]"},
    {"{strategy: ddp, bucket_cap_mb: 50, static_graph: true}", 8, "ddp", "[8]"},
    {"{strategy: fsdp2, tp_size: 8, pp_size: 4, cp_size: 1, ep_size: 1, "
     "pipeline: {pp_schedule: interleaved1f1b, pp_microbatch_size: 1}}",
     64, "fsdp2", "[4, 1, 2, 1, 8]"},
    {"{strategy: fsdp2, ep_size: 8, moe: {reshard_after_forward: false}}", 8, "fsdp2", "[1, 1, 8, 1, 1]"},
    {"{strategy: fsdp2, tp_size: 1, cp_size: 1}", 2, "fsdp2", "[1, 1, 2, 1, 1]"},
    {"{strategy: fsdp2, tp_size: 4, sequence_parallel: true}", 8, "fsdp2", "[1, 1, 2, 1, 4]"},
    {"{strategy: fsdp2, pp_size: 2, "
     "pipeline: {pp_schedule: interleaved1f1b, pp_microbatch_size: 4, scale_grads_in_schedule: false}}",
     4, "fsdp2", "[2, 1, 2, 1, 1]"},
    {"{strategy: fsdp2, dp_replicate_size: 2}", 8, "fsdp2", "[1, 2, 4, 1, 1]"},
    {"{activation_checkpointing: true}", 1, "fsdp2", "[1, 1, 1, 1, 1]"},
    {"{defer_fsdp_grad_sync: true}", 1, "fsdp2", "[1, 1, 1, 1, 1]"},
    {"{strategy: fsdp2, cp_size: 2}", 8, "fsdp2", "[1, 1, 4, 2, 1]"},
    {"{strategy: fsdp2, ep_size: 8, activation_checkpointing: true, "
     "moe: {reshard_after_forward: false, ignore_router_for_ac: false, wrap_outer_model: true}}",
     16, "fsdp2", "[1, 1, 16, 1, 1]"},
    {"{strategy: fsdp2, tp_size: 1, cp_size: 1, pp_size: 1, ep_size: 8, sequence_parallel: false, "
     "activation_checkpointing: true}",
     8, "fsdp2", "[1, 1, 8, 1, 1]"}};
INSTANTIATE_TEST_SUITE_P(Sections, Guide, testing::ValuesIn(kExamples));

TEST(Guide, ReadsTheReferenceSection) {
  const std::string section =
      "\n  strategy: fsdp2\n  dp_size: none\n  dp_replicate_size: none\n  tp_size: 1\n  pp_size: 1\n  "
      "cp_size: 1\n"
      "  ep_size: 1\n  sequence_parallel: false\n  activation_checkpointing: false\n  defer_fsdp_grad_sync: "
      "true\n"
      "  pipeline:\n    pp_schedule: 1f1b\n    pp_microbatch_size: 1\n  moe:\n    reshard_after_forward: "
      "false\n";
  const heddle::Setup setup = setup_of(section, 4);
  EXPECT_EQ(setup.sizes.dp_shard, 4);
  EXPECT_EQ(setup.warnings.size(), 2u);  // the sections at pp_size 1 and ep_size 1
  EXPECT_TRUE(setup.not_built.empty());
}

TEST(Json, WritesASetup) {
  EXPECT_EQ(
      engine::to_json(setup_of("{strategy: ddp, pipeline: {}}", 2)),
      R"({"strategy": "ddp", "world_size": 2, "mesh": {"axes": ["dp"], "shape": [2]}, )"
      R"("sizes": {"pp": 1, "dp": 2, "dp_replicate": 1, "dp_shard": 2, "cp": 1, "tp": 1, "ep": 1, "ep_shard": 1}, )"
      R"("strategy_config": )" +
          printed("{strategy: ddp}", 2, "strategy_config") +
          R"(, "pipeline": null, "context": null, "moe": null, "activation_checkpointing": false, )"
          R"("warnings": ["`distributed.pipeline` is set but pp_size=1 (<= 1): pipeline parallelism is disabled and the )"
          R"(pipeline settings are ignored. Set pp_size > 1 to enable it."], "not_built": []})");
}

TEST(SetupText, NamesSettingsThatARunRefuses) {
  const std::string text =
      engine::to_text(setup_of("{cp_size: 2, multimodal: {vision: {frame_sharding: {enabled: true}}}}", 4));
  EXPECT_NE(text.find("mesh: pp 1, dp_replicate 1, dp_shard 2, cp 2, tp 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("not built yet: distributed.multimodal: "), std::string::npos);
}

}  // namespace
}  // namespace heddle
