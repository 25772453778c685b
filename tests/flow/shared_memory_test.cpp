// `heddle train` with ranks of one machine: shared memory and Gloo give the same bits under every strategy.
#include <gtest/gtest.h>

#include "tests/main/with_all.h"
#include "training_files.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("Strategies/Transports.*/2");

class Transports : public ::testing::TestWithParam<const char*> {};

// A model whose flat buffers are large enough to be read in place.
TEST_P(Transports, GiveTheSameLossesAndGradientNorms) {
  const TrainingFiles files;
  const auto run = [&](const std::string& name, const std::string& shared) {
    const auto words = files.train(
        name, {"--nproc-per-node", "2", "--step_scheduler.max_steps", "3", "--model.config.hidden_size",
               "144", "--model.config.intermediate_size", "280", "--distributed", GetParam()});
    const Outcome outcome = heddle(words, {"HEDDLE_SHM=" + shared});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(column(files.path(name + "/training.jsonl"), "grad_norm").size(), 3u);
    return without_clock(files.path(name + "/training.jsonl"));
  };
  EXPECT_EQ(run("shared", "1"), run("gloo", "0"));
}

INSTANTIATE_TEST_SUITE_P(Strategies, Transports,
                         ::testing::Values("{strategy: ddp}", "{strategy: fsdp2}",
                                           "{strategy: megatron_fsdp, zero_dp_strategy: 3}",
                                           "{strategy: megatron, use_distributed_optimizer: true}"));

}  // namespace
}  // namespace flow
