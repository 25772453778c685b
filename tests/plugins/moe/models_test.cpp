// GPT-OSS, GLM-4.5, MiniMax-M2, Ling and DeepSeek-V3 train as on one rank under every strategy, expert and
// tensor parallelism, and in pipelines.
#include <gtest/gtest.h>

#include "plugins/moe/runs.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("Types/MoeModel*");

class MoeModel : public ::testing::TestWithParam<std::string> {
 protected:
  static Training run() {
    if (GetParam() == "deepseek_v3") return deepseek();
    return GetParam() == "gpt_oss" ? gpt_oss() : sigmoid_model(GetParam());
  }
};

TEST_P(MoeModel, EqualsOneRankUnderEveryStrategy) {
  expect_equal_on(
      run(),
      {"[fsdp2|ddp|megatron_fsdp|megatron] [dp2|dp4 ep2]", "fsdp2 dp4 replicas2 ep2", "fsdp2 dp2 selective"},
      [](const Outcome& got, const Outcome& want) {
        EXPECT_LT(want.losses.back(), 0.95 * want.losses.front());
        expect_close(got, want);
      });
}

TEST_P(MoeModel, EqualsOneRankUnderExpertParallelism) {
  expect_equal_on(run(), {"fsdp2 [dp2 ep2|dp4 ep2|dp4 ep4]" + kWays});
}

// Empty rows get no bias.
TEST_P(MoeModel, EqualsOneRankWithEmptyRows) {
  expect_equal_on(run(), {"fsdp2 dp2 ep2" + kEmptyRows}, expect_close_without_drops);
}

// Excludes norms of single heads, which amplify the rounding of sums over tp more than experts do.
TEST_P(MoeModel, EqualsOneRankWithTensorParallelism) {
  Training one = run();
  one.model.qk_norm = one.model.qk_norm_of_whole;
  expect_equal_on(one, {"single tp2", "fsdp2 dp2 tp2 ep2", "ddp tp2 ep2(alltoall)"});
}

TEST_P(MoeModel, EqualsOneRankInPipelines) {
  expect_equal_on(run(), {"fsdp2 dp2 ep2 pp2([1f1b|zb1p])[| full]"});
}

TEST_P(MoeModel, EqualsOneRankWithContextParallelism) {
  expect_equal_on(of_four_tokens(run()),
                  {"fsdp2 cp2([allgather|ring|ulysses]) ep2", "fsdp2 cp4(ring_ulysses) ep2"});
}

INSTANTIATE_TEST_SUITE_P(Types, MoeModel,
                         ::testing::Values("gpt_oss", "glm4_moe", "minimax_m2", "bailing_moe", "deepseek_v3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace heddle::tests
