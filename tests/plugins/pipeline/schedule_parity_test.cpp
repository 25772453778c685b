// Every schedule of the plugin `pipeline` trains like `single`, under every strategy.
#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/schedule/simulate.h"
#include "plugins/pipelines.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("Of/EverySchedule*");

// Layers that no number of stages here divides.
Training uneven_layers(int layers) {
  Training run = single_model();
  run.model.num_hidden_layers = layers;
  run.steps = 3;
  return run;
}

Training uneven_qwen(int layers) {
  Training run = four_heads("qwen3", layers);
  run.microbatches = 1;
  run.steps = 3;
  return run;
}

class EverySchedule : public ::testing::TestWithParam<const char*> {
 protected:
  // The twelve sequences of a step, one per microbatch.
  static std::string stages(int ranks) {
    return " pp" + std::to_string(ranks) + "(" + GetParam() + ") rows1";
  }
};

INSTANTIATE_TEST_SUITE_P(Of, EverySchedule, ::testing::ValuesIn(kEverySchedule), name_of_schedule);

TEST_P(EverySchedule, EqualsSingleOnTwoAndFourRanks) {
  for (const auto& [ranks, layers] : {std::pair{2, 5}, {4, 9}}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const Outcome got = train(on(uneven_layers(layers), "single" + stages(ranks)));
    expect_close(got, train(uneven_layers(layers)));
    const auto schedule = make_schedule(GetParam());
    const int count = ranks * std::min(2, schedule->stages_per_rank().most);
    EXPECT_EQ(got.peaks, schedule::peak_alive(schedule->plan(ranks, count, 12)));
  }
}

// The last topology has two calls of six microbatches.
TEST_P(EverySchedule, EqualsSingleUnderEveryDataParallelStrategy) {
  expect_equal_on(
      uneven_layers(5),
      {"ddp(bucket_cap_mb: 0.001) dp2" + stages(2),
       "fsdp2([reshard_after_forward: null|reshard_after_forward: true|defer_fsdp_grad_sync: false]) dp2" +
           stages(2),
       "megatron([overlap_grad_reduce: true, bucket_size: 2000|use_megatron_fsdp: true, "
       "data_parallel_sharding_strategy: optim_grads_params, overlap_grad_reduce: true, "
       "overlap_param_gather: "
       "true]) dp2" +
           stages(2),
       "single" + stages(2) + " calls2"});
}

TEST_P(EverySchedule, EqualsSingleWithTensorParallelismAndRecomputedUnits) {
  expect_equal_on(uneven_qwen(5), {"fsdp2 dp2 tp2(sequence)" + stages(2) + "[| full| selective]"});
}

// Llama with shards and with replicas of them. Qwen3 with tensor parallelism, two calls per step and
// recomputed units.
TEST_P(EverySchedule, EqualsSingleOnTwoAndFourRanksWithEveryOtherAxis) {
  for (const auto& [ranks, layers] : {std::pair{2, 5}, {4, 9}}) {
    Training llama = uneven_layers(layers), qwen = uneven_qwen(layers);
    llama.sequences = qwen.sequences = 32;  // at least eight microbatches per call
    expect_equal_on(llama, {"fsdp2 [dp2|dp4 replicas2]" + stages(ranks)});
    expect_equal_on(qwen, {"fsdp2 dp2 tp2(sequence)" + stages(ranks) + " calls2 full"});
  }
}

TEST_P(EverySchedule, GivesTheSameBitsTwice) {
  expect_same_bits_twice(on(uneven_layers(5), "single" + stages(2)));
}

}  // namespace
}  // namespace heddle::tests
