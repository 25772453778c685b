// Training under context parallelism equals one rank by every method, with every strategy, tensor parallelism
// and pipelines. No number of ranks divides the sequences of seven tokens.
#include <gtest/gtest.h>

#include "plugins/toy_training.h"
#include "plugins/training_data.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("Context.*WithEveryOtherAxis:Context.*UnderFsdp2:PackedDocuments.*");

const std::string kMethod = "([allgather|ring|ulysses|ring_ulysses])";

TEST(Context, EqualsOneRankUnderFsdp2) {
  for (const char* model : {"llama", "qwen3"})
    expect_equal_on(four_heads(model), {"fsdp2 cp[2|4]" + kMethod});
}

TEST(Context, EqualsOneRankWithEveryOtherAxis) {
  expect_equal_on(four_heads(),
                  {"fsdp2 cp3([allgather|ring])", "fsdp2 dp4 replicas2 cp2" + kMethod,
                   "[megatron|megatron_fsdp] dp2 cp2" + kMethod, "fsdp2 cp2" + kMethod + " tp2(sequence)",
                   "fsdp2 cp2" + kMethod + " [full|selective]"});
}

TEST(Context, EqualsOneRankInAPipeline) {
  expect_equal_on(four_heads("llama", 5),
                  {"fsdp2 cp2" + kMethod + " pp2(1f1b) calls2", "fsdp2 cp4(ring_ulysses) pp2(1f1b) calls2"});
}

TEST(Context, EqualsOneRankOnTwoDimensions) {
  Training one = four_heads();
  one.steps = 6;
  expect_equal_on(one, {"fsdp2 cp8(ring_ulysses[|, ulysses_size: 4])"});
}

// Only the first tokens have labels, so the last parts have none.
TEST(Context, EqualsOneRankIfPartsHaveNoLabels) {
  Training one = four_heads();
  one.change_batch = [](Batch& batch, int) {
    batch.labels.narrow(1, 2, batch.labels.size(1) - 2).fill_(Batch::kIgnore);
  };
  expect_equal_on(one, {"fsdp2 cp4" + kMethod});
}

TEST(Context, TrainsInBfloat16LikeOneRank) {
  const std::string half = "fsdp2(" + kBfloat16 + ")";
  expect_equal_on(on(four_heads(), half), {half + " cp2" + kMethod}, expect_rounded_alike);
}

TEST(Context, RefusesHeadsThatDoNotDivide) {
  EXPECT_EQ(error_of([] { train(on(four_heads(), "fsdp2 cp3(ulysses)")); }),
            "error[config] distributed.context.method: method ulysses needs numbers of query heads and "
            "key-value heads that cp_size divides: a rank has 8, cp_size is 3\n"
            "  hint: set method: allgather or ring, or a cp_size that divides the heads");
}

Training packed(const std::string& model = "llama", int layers = 2) {
  Training run = four_heads(model, layers);
  run.change_batch = pack;
  return run;
}

TEST(PackedDocuments, TrainLikeSeparateDocuments) {
  for (const char* model : {"llama", "qwen3"}) {
    Training alone = four_heads(model);
    alone.change_batch = unpack;
    expect_close(train(packed(model)), train(alone));
  }
}

TEST(PackedDocuments, EqualOneRankUnderContextParallelism) {
  expect_equal_on(packed(), {"fsdp2 cp[2|4]" + kMethod, "fsdp2 cp2" + kMethod + " tp2(sequence)"});
  Training deep = packed("llama", 5);
  deep.microbatches = 2;  // all microbatches of a call have the same number of packed rows
  expect_equal_on(deep, {"fsdp2 cp2([allgather|ring]) pp2(1f1b) calls2 full"});
}

}  // namespace
}  // namespace heddle::tests
