// Mixers with a state per head under context parallelism equal one rank, with every method, with every other
// axis, and in packed documents.
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "plugins/toy_training.h"
#include "plugins/training_data.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("*ContextMixers.EqualOneRank*");

const std::string kEachMethod = "([allgather|ring|ulysses|ring_ulysses])";

class ContextMixers : public ::testing::TestWithParam<MixingModel> {};

// The first moments of the first step are the clipped gradients.
TEST_P(ContextMixers, HaveTheGradientsOfOneRank) {
  const auto compare = [](const Outcome& got, const Outcome& want) {
    ASSERT_EQ(got.averages.size(), want.averages.size());
    for (const auto& [name, gradient] : want.averages) {
      const double scale = gradient.abs().max().item<double>();
      EXPECT_LE((got.averages.at(name) - gradient).abs().max().item<double>(), 2e-5 * scale + 1e-7) << name;
    }
  };
  for (const bool packed : {false, true}) {
    Training one = mixing(GetParam());
    one.steps = 1;
    if (packed) one.change_batch = pack;
    expect_equal_on(one, {"fsdp2 dp2", "fsdp2 cp[2|3](allgather)", "fsdp2 cp4(ring_ulysses)"}, compare);
  }
}

TEST_P(ContextMixers, EqualOneRankByEveryMethod) {
  expect_equal_on(mixing(GetParam()),
                  {"fsdp2 dp2", "fsdp2 cp2" + kEachMethod, "fsdp2 cp[3|4]([allgather|ring])"});
}

TEST_P(ContextMixers, EqualOneRankWithOtherAxes) {
  expect_equal_on(mixing(GetParam()),
                  {"[megatron|megatron_fsdp] dp2 cp2(allgather)", "fsdp2 dp4 replicas2 cp2(ring)",
                   "fsdp2 cp2[(allgather)|(ulysses)] tp2()", "fsdp2 cp3(ring) [full|selective]"});
}

TEST_P(ContextMixers, EqualOneRankInAPipeline) {
  expect_equal_on(mixing(GetParam()), {"fsdp2 cp2(allgather) pp2([1f1b|zb2p]) calls2"});
}

TEST_P(ContextMixers, EqualOneRankInPackedDocuments) {
  Training run = mixing(GetParam());
  run.change_batch = pack;
  expect_equal_on(run,
                  {"fsdp2 dp2", "fsdp2 cp2" + kEachMethod, "fsdp2 cp3(ring)", "fsdp2 cp2(allgather) full"});
}

TEST_P(ContextMixers, TrainInBfloat16LikeOneRank) {
  const std::string half = "fsdp2(" + kBfloat16 + ")";
  Training one = mixing(GetParam());
  one.steps = 1;  // normalized keys amplify rounding in later steps
  expect_equal_on(on(one, half), {half + " dp2", half + " cp[2|3](allgather)"}, expect_rounded_alike);
}

INSTANTIATE_TEST_SUITE_P(Models, ContextMixers, ::testing::ValuesIn(kMixing),
                         [](const auto& info) { return info.param.name; });

// Two groups of three heads over five ranks: two and three ranks share a group. Six heads of one group.
TEST(ContextMixerHeads, AreSplitUnevenly) {
  for (const size_t which : {0, 2}) expect_equal_on(mixing(kMixing[which]), {"fsdp2 cp[5|6](ring)"});
}

TEST(ContextMixerHeads, AreThoseOfATensorParallelRank) {
  for (const size_t which : {0, 2, 3})
    expect_equal_on(mixing(kMixing[which]),
                    {"fsdp2(reshard_after_forward: true) cp2(allgather) tp2(sequence)[| full]"});
}

std::string said_of_mixing(size_t which, int cp, int tp) {
  Sizes sizes;
  sizes.world = cp * tp;
  sizes.cp = cp, sizes.tp = tp;
  return error_of([&] {
    Units units = mixing(kMixing[which]).make_units(0);
    make_parallelizer("context", "context: {method: allgather}")->check(units, sizes);
  });
}

TEST(ContextMixerHeads, AreRefusedIfThereAreMoreRanks) {
  EXPECT_EQ(said_of_mixing(0, 6, 1), "no error");
  EXPECT_EQ(said_of_mixing(0, 3, 2), "no error");
  EXPECT_EQ(said_of_mixing(0, 4, 2),
            "error[config] distributed.cp_size: the ranks of cp split the heads of mixers and of attention "
            "over selected keys: a rank of tp has 3, cp_size is 4\n"
            "  hint: choose a cp_size of at most the number of heads");
  EXPECT_EQ(said_of_mixing(0, 6, 3),
            "no error");  // tp_size does not divide the groups, so all ranks have all groups
  EXPECT_EQ(said_of_mixing(4, 5, 5), "no error");  // stays whole
  EXPECT_THAT(said_of_mixing(4, 6, 1), ::testing::HasSubstr("a rank of tp has 5, cp_size is 6"));
}

}  // namespace
}  // namespace heddle::tests
