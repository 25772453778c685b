// megatron trains to the numbers of `single` with every field that runs here.
#include <gtest/gtest.h>

#include "plugins/megatron_runs.h"

namespace heddle::tests {
namespace {

const std::string kDistributed = "use_distributed_optimizer: true\n";
const std::string kOverlap = "overlap_grad_reduce: true\nbucket_size: 500\n";

void expect_single(const std::string& section, int shards_each, int replicas, int microbatches) {
  static const Outcome want = [] {
    Training whole = llama_alone();
    whole.steps = 6;
    return train(whole);
  }();
  SCOPED_TRACE(section + " on " + std::to_string(shards_each) + " x " + std::to_string(replicas) +
               " ranks, microbatches " + std::to_string(microbatches));
  Training run = megatron(shards_each, section, replicas);
  run.steps = 6;
  run.microbatches = microbatches;
  expect_close(train(run), want);
}

TEST(Megatron, EqualsSingleWithFlatBuffers) {
  for (const std::string& section :
       {std::string("{}"), kOverlap, kDistributed, kDistributed + kOverlap,
        kDistributed + kOverlap + "overlap_param_gather: true",
        kDistributed + kOverlap + "overlap_param_gather: true\nalign_param_gather: true",
        kDistributed + "overlap_grad_reduce: true\nnum_buckets: 3\npad_buckets_for_high_nccl_busbw: true",
        kDistributed + kOverlap + "average_in_collective: true",
        kDistributed + kOverlap + "gradient_reduce_div_fusion: false",
        kDistributed + kOverlap + "calculate_per_token_loss: true",
        kDistributed + kOverlap + "reduce_scatter_with_fp32_accumulation: true",
        kDistributed + kOverlap + "param_name_patterns_for_fp32_local_accumulation: [all]",
        kDistributed + kOverlap + "grad_reduce_in_fp32: true",
        kDistributed + kOverlap + "check_for_nan_in_grad: true\ncheck_for_large_grads: true",
        kDistributed + kOverlap + "delay_wgrad_compute: true"})
    for (const int ranks : {1, 2, 3})
      for (const int microbatches : {1, 3})
        if (ranks * microbatches <= 6) expect_single(section, ranks, 1, microbatches);
}

TEST(Megatron, EqualsSingleWithInstancesOfTheDistributedOptimizer) {
  for (const std::string& more : {std::string(""), std::string("num_distributed_optimizer_instances: 2\n")})
    for (const int microbatches : {1, 3}) {
      expect_single(kDistributed + kOverlap + more, 2, 2, microbatches);
      expect_single(kDistributed + kOverlap + more, 1, 2, microbatches);
    }
  expect_single(kOverlap, 2, 2, 3);
}

TEST(Megatron, EqualsSingleWhateverIsSplit) {
  for (const std::string& strategy : kShardings)
    for (const std::string& more :
         {std::string(""), std::string("overlap_grad_reduce: true\noverlap_param_gather: true\n"),
          std::string("overlap_grad_reduce: true\nfsdp_double_buffer: true\n"),
          std::string("megatron_fsdp_max_pool_double_buffer: true\n"),
          std::string("fsdp_double_buffer: true\nfsdp_db_use_persist_buf_on_alloc_fail: true\n"),
          std::string("suggested_communication_unit_size: 1\noverlap_grad_reduce: true\n"),
          std::string("suggested_communication_unit_size: 1000000\noverlap_grad_reduce: true\n"),
          std::string("reduce_scatter_with_fp32_accumulation: true\n"),
          std::string("megatron_fsdp_main_grads_dtype: float64\nmegatron_fsdp_grad_comm_dtype: float32\n"),
          std::string("delay_wgrad_compute: true\n"), std::string("calculate_per_token_loss: true\n")})
      for (const int microbatches : {1, 3}) expect_single(fsdp(strategy, more), 2, 1, microbatches);
}

TEST(Megatron, EqualsSingleUnderHybridSharding) {
  for (const std::string& strategy : kShardings)
    for (const int microbatches : {1, 3}) {
      expect_single(fsdp(strategy), 2, 2, microbatches);
      expect_single(fsdp(strategy), 1, 2, microbatches);
    }
  for (const int microbatches : {1, 3}) {
    expect_single(fsdp("optim_grads_params", "outer_dp_sharding_strategy: optim"), 2, 2, microbatches);
    expect_single(
        fsdp("optim_grads_params", "outer_dp_sharding_strategy: optim\ncalculate_per_token_loss: true"), 2, 2,
        microbatches);
  }
}

TEST(Megatron, EqualsSingleWithTiedEmbeddingsAndFrozenParameters) {
  Training whole = llama_alone();
  whole.model.tie_word_embeddings = true;
  whole.frozen = {"model.layers.0.self_attn.q_proj.weight", "model.norm.weight"};
  const Outcome want = train(whole);
  for (const std::string& section :
       {kOverlap, kDistributed + kOverlap, fsdp("optim_grads"), fsdp("optim_grads_params"),
        fsdp("optim_grads_params", "delay_wgrad_compute: true")})
    for (const int microbatches : {1, 3}) {
      SCOPED_TRACE(section);
      Training run = megatron(2, section);
      run.model.tie_word_embeddings = true;
      run.frozen = whole.frozen;
      run.microbatches = microbatches;
      expect_close(train(run), want);
    }
}

TEST(Megatron, EqualsSingleWithUnitsComputedAgain) {
  const Outcome want = train(llama_alone());
  for (const std::string& section :
       {kDistributed + kOverlap, fsdp("optim_grads_params"), kOverlap + "delay_wgrad_compute: true"}) {
    SCOPED_TRACE(section);
    Training run = megatron(2, section);
    run.microbatches = 3;
    run.checkpointing = ActivationCheckpointing::full;
    expect_close(train(run), want);
  }
}

TEST(Megatron, EqualsSingleUnderTensorParallelism) {
  Training whole = llama_alone();
  whole.model.num_attention_heads = 4, whole.model.num_key_value_heads = 2;
  const Outcome want = train(whole);
  for (const std::string& section : {kDistributed + kOverlap, fsdp("optim_grads_params")}) {
    SCOPED_TRACE(section);
    Training run = megatron(2, section);
    run.axes.back().size = 2;
    run.model.num_attention_heads = 4, run.model.num_key_value_heads = 2;
    run.parallelizers = {{"tensor", "sequence_parallel: true"}};
    expect_close(train(run), want);
  }
}

TEST(Megatron, CountsAParameterUnusedOnOneRankAsZeroThere) {
  for (const std::vector<double>& used : {std::vector<double>{1, 0}, {0, 1}, {1, -1}, {-1, 1}}) {
    Training whole = toy("single", {});
    whole.microbatches = 2;
    use_extra_where(whole, used);
    const Outcome want = train(whole);
    for (const std::string& section :
         {std::string("overlap_grad_reduce: true\nbucket_size: 50"),
          kDistributed + "overlap_grad_reduce: true\nbucket_size: 50", fsdp("optim_grads_params")}) {
      SCOPED_TRACE(section);
      Training run = toy_like(megatron(2, section));
      use_extra_where(run, used);
      expect_close(train(run), want);
    }
  }
}

}  // namespace
}  // namespace heddle::tests
