// A parameter that the first and the last stage share trains as on one rank, and its copies stay equal.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "heddle/train/step.h"
#include "plugins/pipelines.h"
#include "plugins/toy_training.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("Of/TiedOnEverySchedule*");

Training tied_model(int layers = 5) {
  Training run = single_model();
  run.model.num_hidden_layers = layers;
  run.model.tie_word_embeddings = true;
  run.steps = 4;
  return run;
}

Training tied_heads() {
  Training run = four_heads("qwen3", 5);
  run.model.tie_word_embeddings = true;
  run.steps = 4;
  return run;
}

TEST(TiedStages, EqualOneRank) {
  expect_equal_on(tied_model(), {"single pp[2|4](1f1b) rows[3|1]", "single pp2(zb1p) rows1 calls2"});
}

TEST(TiedStages, EqualOneRankUnderEveryStrategy) {
  expect_equal_on(tied_model(),
                  {"ddp(bucket_cap_mb: 0.001) dp2 pp2(1f1b) rows1", "fsdp2 dp3 pp2(1f1b) rows1",
                   "fsdp2 dp4 replicas2 pp2(1f1b) rows1",
                   "megatron([use_distributed_optimizer: true|use_distributed_optimizer: false], "
                   "bucket_size: 2000) dp3 pp2(1f1b) rows1",
                   "megatron(use_megatron_fsdp: true, data_parallel_sharding_strategy: optim_grads_params) "
                   "dp3 pp2(1f1b) rows1"});
}

TEST(TiedStages, EqualOneRankUnderEveryAxis) {
  expect_equal_on(tied_heads(),
                  {"single tp2[|(sequence)] pp2(1f1b) rows1", "fsdp2 dp2 tp2 pp2(zb1p) rows1 full",
                   "fsdp2 cp2(allgather) pp2(1f1b) rows1", "megatron tp2 dp2 pp2(1f1b) rows1"});
}

class TiedOnEverySchedule : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Of, TiedOnEverySchedule, ::testing::ValuesIn(kEverySchedule), name_of_schedule);

// In a V the first and the last stage are on one rank, which then has two copies.
TEST_P(TiedOnEverySchedule, EqualsOneRank) {
  const std::string stages = " pp2(" + std::string(GetParam()) + ") rows1";
  expect_equal_on(tied_model(),
                  {"single" + stages, "megatron(use_distributed_optimizer: true) dp3" + stages});
}

// Returns the parameters of all ranks, by rank and position in owned().
std::map<std::string, at::Tensor> whole_copies(const Training& run) {
  std::mutex lock;
  std::map<std::string, at::Tensor> copies;  // by name and stage
  on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
    Step step(stages, mesh, StepConfig{});
    const Batch batch = toy_batch();
    for (int i = 0; i < 3; ++i) step.run(std::span(&batch, 1), 1e-2, 0.1);
    for (size_t local = 0; local < stages.size(); ++local)
      for (const Shard& shard : stages[local]->owned()) {
        const std::lock_guard guard(lock);
        at::Tensor& whole = copies[shard.name + " of stage " + std::to_string(stages.indices()[local])];
        if (!whole.defined()) whole = at::zeros(shard.shape);
        at::Tensor box = whole;
        for (int64_t dim = 0; dim < box.dim(); ++dim)
          box = box.narrow(dim, shard.offset[dim], shard.tensor.size(dim));
        box.copy_(shard.tensor.detach());
      }
  });
  return copies;
}

// Compares bits: copies that differ slightly would diverge further with each step.
TEST(TiedStages, HoldEqualCopiesAfterUpdates) {
  for (const char* line :
       {"single pp2(1f1b) rows1", "fsdp2 dp2 pp2(1f1b) rows1", "megatron dp2 pp2(1f1b) rows1",
        "megatron(use_megatron_fsdp: true, data_parallel_sharding_strategy: optim_grads_params) dp2 "
        "pp2(1f1b) rows1",
        "single pp2(zbvzerobubble) rows1"}) {
    SCOPED_TRACE(line);
    const auto copies = whole_copies(on(tied_model(), line));
    std::vector<at::Tensor> found;
    for (const auto& [name, whole] : copies)
      if (name.starts_with("model.embed_tokens.weight")) found.push_back(whole);
    ASSERT_EQ(found.size(), 2u);
    EXPECT_TRUE(at::equal(found[0], found[1])) << (found[0] - found[1]).abs().max();
  }
}

// Units with values start with those of the first stage, whatever make_units() returned on each rank.
TEST(TiedStages, StartWithTheValuesOfTheFirst) {
  Toy model{.meta = false, .tied = true};
  model.layers = 4;
  Training one = toy("single", {}, "", model);
  expect_equal_on(one, {"single pp2(1f1b)", "single pp2(zbvzerobubble)"});
}

TEST(TiedStages, AreRefusedOnOneRankForAForeignModule) {
  Toy model{.meta = false, .foreign = true, .tied = true};
  model.layers = 4;
  const Training run = toy("single", {}, "", model);
  expect_equal_on(run, {"single pp2([1f1b|interleaved1f1b])"});
  EXPECT_EQ(error_of([&] { train(on(run, "single pp2(zbvzerobubble)")); }),
            "error[config] parallel: the stages 0 and 3, which one rank holds, both use 'embed.weight' of a "
            "foreign module\n  hint: choose a schedule with one stage for each rank, or a model without tied "
            "parameters");
}

}  // namespace
}  // namespace heddle::tests
