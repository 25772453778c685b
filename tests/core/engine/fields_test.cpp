// Fields of every strategy and section, as in recipes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/engine/setups.h"

namespace heddle {
namespace {

using namespace tests;

std::string field(const std::string& section, const std::string& key) {
  return printed(section, 8, "strategy_config." + key);
}

TEST(Fields, HaveDefaultsForFsdp2) {
  EXPECT_EQ(
      printed("{}", 8, "strategy_config"),
      R"({"sequence_parallel": false, "tp_plan": null, "patch_is_packed_sequence": false, )"
      R"("mp_policy": {"param_dtype": "bfloat16", "reduce_dtype": "float32", "output_dtype": null, )"
      R"("cast_forward_inputs": false}, "offload_policy": null, "autocast_dtype": null, )"
      R"("activation_checkpointing": false, "activation_checkpointing_scope": ["all"], )"
      R"("defer_fsdp_grad_sync": true, "reshard_after_forward": null, "enable_async_tensor_parallel": false, )"
      R"("enable_compile": false, "enable_fsdp2_prefetch": false, "fsdp2_backward_prefetch_depth": 2, )"
      R"("fsdp2_forward_prefetch_depth": 1, "multimodal": {"frozen_sharding": "root", "vision": )"
      R"({"frame_sharding": {"enabled": false, "mesh_dims": ["cp"], "min_tokens": 2048, "min_frames": 32, )"
      R"("min_local_patch_rows": 96, "cost_alpha": "auto"}}}})");
}

TEST(Fields, HaveDefaultsForDdp) {
  EXPECT_EQ(printed("{strategy: ddp}", 8, "strategy_config"),
            R"({"activation_checkpointing": false, "activation_checkpointing_scope": ["all"], )"
            R"("broadcast_buffers": false, "find_unused_parameters": false, "static_graph": false, )"
            R"("bucket_cap_mb": null, "gradient_as_bucket_view": false, "autocast_dtype": null})");
}

TEST(Fields, HaveDefaultsForMegatronFsdp) {
  const std::pair<const char*, const char*> rows[] = {
      {"megatron_fsdp_unit_modules", "null"},  {"zero_dp_strategy", "3"},
      {"init_fsdp_with_meta_device", "false"}, {"grad_reduce_in_fp32", "false"},
      {"preserve_fp32_weights", "false"},      {"overlap_grad_reduce", "true"},
      {"overlap_param_gather", "true"},        {"check_for_nan_in_grad", "true"},
      {"report_nan_in_param_grad", "false"},   {"average_in_collective", "false"},
      {"disable_bucketing", "false"},          {"calculate_per_token_loss", "false"},
      {"keep_fp8_transpose_cache", "false"},   {"nccl_ub", "false"},
      {"fsdp_double_buffer", "false"},         {"activation_checkpointing", "false"}};
  for (const auto& [key, value] : rows) EXPECT_EQ(field("{strategy: megatron_fsdp}", key), value) << key;
  EXPECT_EQ(setup_of("{strategy: megatron_fsdp}", 8).strategy_config.size(), std::size(rows));
}

TEST(Fields, AreReadForMixedPrecisionOfFsdp2) {
  const char* bf16 =
      R"({"param_dtype": "bfloat16", "reduce_dtype": "float32", "output_dtype": null, "cast_forward_inputs": false})";
  const char* nothing =
      R"({"param_dtype": null, "reduce_dtype": null, "output_dtype": null, "cast_forward_inputs": false})";
  EXPECT_EQ(field("{mp_policy: null}", "mp_policy"), bf16);
  EXPECT_EQ(field("{mp_policy: {}}", "mp_policy"), nothing);
  EXPECT_EQ(field("{mp_policy: {_target_: torch.distributed.fsdp.MixedPrecisionPolicy}}", "mp_policy"),
            nothing);
  EXPECT_EQ(
      field("{mp_policy: {param_dtype: torch.float16, reduce_dtype: bf16, output_dtype: Float, "
            "cast_forward_inputs: true}}",
            "mp_policy"),
      R"({"param_dtype": "float16", "reduce_dtype": "bfloat16", "output_dtype": "float32", "cast_forward_inputs": true})");
}

TEST(Fields, AreReadForOffloadAndAutocast) {
  EXPECT_EQ(field("{offload_policy: {}}", "offload_policy"), R"({"pin_memory": true})");
  EXPECT_EQ(field("{offload_policy: {_target_: torch.distributed.fsdp.CPUOffloadPolicy, pin_memory: false}}",
                  "offload_policy"),
            R"({"pin_memory": false})");
  EXPECT_EQ(field("{autocast_dtype: bf16}", "autocast_dtype"), "\"bfloat16\"");
  EXPECT_EQ(field("{strategy: ddp, autocast_dtype: torch.float16}", "autocast_dtype"), "\"float16\"");
}

TEST(Fields, AreReadAsTheirTypes) {
  EXPECT_EQ(field("{reshard_after_forward: no}", "reshard_after_forward"), "false");
  EXPECT_EQ(field("{tp_plan: my.plan}", "tp_plan"), "\"my.plan\"");
  EXPECT_EQ(field("{tp_plan: {a: colwise}}", "tp_plan"), R"({"a": "colwise"})");
  EXPECT_EQ(field("{strategy: ddp, bucket_cap_mb: 50}", "bucket_cap_mb"), "50.0");
  EXPECT_EQ(field("{enable_async_tensor_parallel: true}", "sequence_parallel"), "false");  // printed as given
}

TEST(Fields, AreReadForMultimodal) {
  EXPECT_EQ(field("{multimodal: {frozen_sharding: Per-Layer}}", "multimodal.frozen_sharding"),
            "\"per_layer\"");
  EXPECT_EQ(field("{multimodal: {vision: {frame_sharding: {cost_alpha: null}}}}",
                  "multimodal.vision.frame_sharding.cost_alpha"),
            "null");
}

std::string pipeline(const std::string& block, const std::string& key, const std::string& more = "") {
  return printed("{pp_size: 2, pipeline: " + block + more + "}", 8, "pipeline." + key);
}

TEST(Pipeline, HasDefaultsForAnEmptySection) {
  EXPECT_EQ(
      printed("{pp_size: 2, pipeline: {}}", 8, "pipeline"),
      R"({"pp_schedule": "1f1b", "pp_schedule_csv": null, "pp_schedule_times": null, )"
      R"("pp_schedule_limit": null, "pp_microbatch_size": 1, "pp_batch_size": 1, )"
      R"("layers_per_stage": null, "round_virtual_stages_to_pp_multiple": null, )"
      R"("module_fqns_per_model_part": null, "patch_inner_model": true, "patch_causal_lm_model": true, )"
      R"("patch_stage_backward_maybe_with_nosync": false, "dtype": "bfloat16", "scale_grads_in_schedule": false, )"
      R"("loss_fn": null, "pp_seq_len": null, "pp_recv_buffer_pool": false, "pp_recv_buffer_pool_slack": 2, )"
      R"("pp_post_validation": false, "pp_overlap": false})");
}

TEST(Pipeline, DropsItsSectionAtSizeOne) {
  EXPECT_EQ(printed("{pipeline: {}}", 8, "pipeline"), "null");
}

TEST(Pipeline, DerivesItsDtypeFromMixedPrecision) {
  EXPECT_EQ(pipeline("{}", "dtype"), "\"bfloat16\"");
  EXPECT_EQ(pipeline("{}", "dtype", ", mp_policy: {output_dtype: float32, param_dtype: bf16}"),
            "\"float32\"");
  EXPECT_EQ(pipeline("{}", "dtype", ", mp_policy: {param_dtype: float16}"), "\"float16\"");
  EXPECT_EQ(pipeline("{}", "dtype", ", mp_policy: {}"), "null");
  EXPECT_EQ(pipeline("{dtype: bf16}", "dtype"), "\"bfloat16\"");
  const heddle::Setup other = setup_of("{pp_size: 2, pipeline: {dtype: float32}}", 8);
  EXPECT_EQ(config::to_json(*other.sections[0].second.find("dtype")), "\"float32\"");
}

TEST(Pipeline, ReadsItsFields) {
  EXPECT_EQ(pipeline("{module_fqns_per_model_part: [[a, b], [c]]}", "module_fqns_per_model_part"),
            R"([["a", "b"], ["c"]])");
  EXPECT_EQ(pipeline("{pp_schedule: null}", "pp_schedule"), "null");
}

TEST(Pipeline, IsSelectedByTheNameOfItsSchedule) {
  for (const char* name : {"1f1b", "GPipe"}) {
    const heddle::Setup setup =
        setup_of("{pp_size: 2, pipeline: {pp_schedule: " + std::string(name) + "}}", 8);
    const heddle::Plan plan = heddle::engine::choose(setup, built_plugins());
    ASSERT_NE(plan.schedule, nullptr) << name;
    EXPECT_EQ(plan.schedule->plan(2, 2, 3).size(), 2u) << name;
    EXPECT_EQ(plan.pipeline.where, "run.yaml:1 distributed.pipeline");
  }
  EXPECT_EQ(heddle::engine::choose(setup_of("{}", 8), built_plugins()).schedule, nullptr);
}

TEST(Moe, HasDefaultsWithoutASection) {
  const char* defaults =
      R"({"ignore_router_for_ac": true, "reshard_after_forward": false, "lm_head_precision": null, )"
      R"("wrap_outer_model": true, "mp_policy": null, "dispatcher": "auto", "capacity_factor": null, )"
      R"("drop_by": "weight", "pad_to_capacity": false})";
  for (const char* block : {"", ", moe: {}", ", moe: null"})
    EXPECT_EQ(printed("{ep_size: 8" + std::string(block) + "}", 8, "moe"), defaults);
}

TEST(Moe, IgnoresItsSectionAtSizeOneLikeAutoModel) {
  EXPECT_TRUE(dropped("{moe: {capacity_factor: 1.0}}").parallelizers.empty());
}

TEST(Moe, AppliesItsCapacityAtSizeOne) {
  const heddle::Setup setup = setup_of("{moe: {dispatcher: alltoall, capacity_factor: 0.5}}", 8);
  ASSERT_EQ(setup.parallelizers.size(), 1u);
  EXPECT_EQ(setup.parallelizers[0].first, "moe");
  EXPECT_EQ(config::to_json(*setup.parallelizers[0].second.find("moe")->find("capacity_factor")), "0.5");
  EXPECT_EQ(config::to_json(*setup.strategy_config.find("reshard_after_forward")), "null");
}

TEST(Moe, ReadsItsFields) {
  EXPECT_EQ(
      printed("{ep_size: 8, moe: {mp_policy: {param_dtype: bf16}, lm_head_precision: float32}}", 8,
              "moe.mp_policy"),
      R"({"param_dtype": "bfloat16", "reduce_dtype": null, "output_dtype": null, "cast_forward_inputs": false})");
}

TEST(Fields, AreAcceptedAndNamedWhenNotBuilt) {
  EXPECT_THAT(setup_of("{enable_compile: true, multimodal: {vision: {frame_sharding: {enabled: true}}}}", 8)
                  .not_built,
              testing::ElementsAre(testing::StartsWith("distributed.multimodal: ")));
  EXPECT_TRUE(setup_of("{offload_policy: {}, enable_fsdp2_prefetch: true, patch_is_packed_sequence: true}", 8)
                  .not_built.empty());
  EXPECT_TRUE(setup_of("{multimodal: {frozen_sharding: replicate}}", 8).not_built.empty());
  EXPECT_TRUE(setup_of("{mp_policy: {}, reshard_after_forward: true, defer_fsdp_grad_sync: false}", 8)
                  .not_built.empty());
  EXPECT_TRUE(setup_of("{strategy: ddp, bucket_cap_mb: 3}", 8).not_built.empty());
}

}  // namespace
}  // namespace heddle
