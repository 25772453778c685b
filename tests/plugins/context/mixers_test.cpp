// Mixers with a state of each head under context parallelism: equal to one rank with every method, beside
// every other axis, and in packed documents.
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "plugins/mixing_models.h"
#include "plugins/toy_training.h"
#include "plugins/training_data.h"

namespace heddle::tests {
namespace {

const std::string kEachMethod = "([allgather|ring|ulysses|ring_ulysses])";

class ContextMixers : public ::testing::TestWithParam<MixingModel> {};

// The averages of the first step are the gradients, clipped.
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

TEST_P(ContextMixers, EqualOneRankBesideOtherAxes) {
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

INSTANTIATE_TEST_SUITE_P(Models, ContextMixers, ::testing::ValuesIn(kMixing),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace heddle::tests
