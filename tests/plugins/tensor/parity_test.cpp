// Tensor parallelism trains to the numbers of one rank, whatever is split, beside every strategy; in
// evaluation and generation, and how often it talks.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "lib/run/generate/generate.h"
#include "plugins/toy_training.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("Tensor.*ForEveryType:Tensor.GivesTheSameBitsTwice");

const std::string kTensorFields = "([|sequence|overlapped])";

TEST(Tensor, EqualsOneRankForEveryType) {
  for (const char* type : {"llama", "qwen2", "qwen3"})
    expect_equal_on(four_heads(type),
                    {"single tp[2|4]" + kTensorFields, "single tp2" + kTensorFields + " [full|selective]"});
}

TEST(Tensor, EqualsOneRankWithTiedEmbeddings) {
  Training run = four_heads();
  run.model.tie_word_embeddings = true;
  expect_equal_on(run,
                  {"single tp[2|4]" + kTensorFields, "fsdp2(reshard_after_forward: true) dp3 tp2(sequence)"});
}

TEST(Tensor, EqualsOneRankWithBiasesOfEveryLayerAndAPaddingRow) {
  Training run = four_heads();
  run.model.qkv_bias = run.model.output_bias = run.model.mlp_bias = true;
  run.model.pad_token_id = 7;
  expect_equal_on(run, {"single tp[2|4]" + kTensorFields});
}

TEST(Tensor, EqualsOneRankOnThreeRanksThatGetFewerHeads) {
  Training run = four_heads("qwen3");
  run.model.num_attention_heads = 6;
  run.model.num_key_value_heads = 3;
  expect_equal_on(run, {"single tp3" + kTensorFields});
}

TEST(Tensor, EqualsOneRankWithFrozenParameters) {
  Training run = four_heads("qwen3");
  run.frozen = {"model.norm.weight", "model.layers.0.self_attn.q_norm.weight",
                "model.layers.1.mlp.gate_proj.weight", "model.layers.0.self_attn.o_proj.weight",
                "model.embed_tokens.weight"};
  expect_equal_on(run, {"single tp2" + kTensorFields});
}

TEST(Tensor, GivesTheSameBitsTwice) {
  for (const std::string& line : alternatives("single tp4" + kTensorFields))
    expect_same_bits_twice(on(four_heads("qwen3"), line));
}

TEST(TensorWithFsdp2, EqualsOneRank) {
  expect_equal_on(four_heads("qwen3"),
                  {"fsdp2 dp2 tp2" + kTensorFields, "fsdp2 dp4 replicas2 tp2(sequence)"});
}

TEST(TensorWithFsdp2, TrainsInBfloat16AsOneRankDoes) {
  const std::string half = "fsdp2(" + kBfloat16 + ")";
  expect_equal_on(on(four_heads("qwen3"), half), {half + " dp2 tp2(sequence)"}, expect_rounded_alike);
}

TEST(TensorWithDdp, EqualsOneRank) {
  expect_equal_on(four_heads("qwen3"), {"ddp dp2 tp2([|sequence])"});
}

TEST(TensorWithMegatron, EqualsOneRankWithSplitTokenRowsAndRecomputation) {
  expect_equal_on(
      four_heads("qwen3"),
      {"megatron(use_distributed_optimizer: [true|false]) dp2 tp2(sequence)[| full| selective]",
       "megatron(use_distributed_optimizer: true, overlap_grad_reduce: true, overlap_param_gather: "
       "true) dp2 tp2(sequence) pp2(1f1b) rows1 selective",
       "megatron_fsdp dp2 tp2(sequence) selective"});
}

// A model that draws its values on the CPU without a seed has others on each rank.
TEST(Tensor, TrainsTheValuesOfTheFirstRankWhateverTheOthersDrew) {
  Training run = four_heads("qwen3");
  run.make_units = [model = run.model](int rank) {
    Units units = make_units(model, at::TensorOptions().dtype(at::kFloat).device(at::kCPU));
    for (const auto& unit : units)
      for (ParameterSlot& slot : unit->parameters())
        slot.tensor->detach().copy_(
            at::arange(slot.tensor->numel(), at::kFloat).sin().mul_(0.1).add_(rank).view_as(*slot.tensor));
    return units;
  };
  expect_equal_on(run, {"single tp2", "fsdp2 dp2 tp2"});
}

// Norms on token rows are left out: their parts are summed by the step, which is not run here.
TEST(TensorWithSplitBackward, GivesTheBitsOfAWholeBackward) {
  for (const std::string& line : alternatives("single tp2" + kTensorFields)) {
    Training run = on(four_heads("qwen2"), line);
    run.microbatches = 3;
    const auto in_order = [&](const std::string& order) {
      run.order = order;
      auto out = gradients(run);
      std::erase_if(out, [](const auto& entry) { return entry.first.find("norm") != std::string::npos; });
      return out;
    };
    const auto want = in_order("F0 B0 F1 B1 F2 B2");
    for (const char* order : {"F0 F1 F2 I0 I1 I2 W0 W1 W2", "F0 F1 B0 I1 F2 W1 B2"}) {
      SCOPED_TRACE(line + ", " + order);
      const auto got = in_order(order);
      ASSERT_EQ(got.size(), want.size());
      for (const auto& [name, tensor] : want) EXPECT_TRUE(at::equal(got.at(name), tensor)) << name;
    }
  }
}

struct Continued {
  std::vector<int64_t> tokens;
  at::Tensor logits;  // of the prompt
};

Continued continued(const Training& run, int size) {
  Continued out;
  ThreadWorld::run(size, [&](Rendezvous& rendezvous) {
    at::NoGradGuard no_gradients;
    const DeviceMesh mesh = mesh::build(run.axes, rendezvous, "test: generation");
    Stages stages = build(run, mesh);
    const Logits logits = [&](const Batch& batch) { return stages.front()->forward({}, batch)[0]; };
    const std::vector<int64_t> prompt = {3, 1, 4};
    Batch batch;
    batch.tokens = at::tensor(prompt, at::kLong).unsqueeze(0);
    const at::Tensor of_prompt = logits(batch);
    const std::vector<int64_t> tokens = generate(logits, {5}, 6, {0.0, 0, 0}, 1);
    if (rendezvous.rank() == size - 1) out = {tokens, of_prompt};
  });
  return out;
}

// One token is fewer rows than ranks.
TEST(Tensor, GeneratesTheTokensOfOneRank) {
  Training run = four_heads();
  run.axes = {{"pp", 1}};
  const Continued want = continued(run, 1);
  ASSERT_EQ(want.logits.sizes(), (std::vector<int64_t>{1, 3, 53}));
  for (const int tp : {2, 4})
    for (const std::string& line : alternatives("single tp" + std::to_string(tp) + kTensorFields)) {
      SCOPED_TRACE(line);
      const Continued got = continued(on(run, line), tp);
      EXPECT_EQ(got.tokens, want.tokens);
      EXPECT_TRUE(at::allclose(got.logits, want.logits, 1e-4, 1e-5));
    }
}

// Of two layers: attention and MLP each enter and leave once; then the embedding, the head, and one block of
// the loss. Once a step: the gradients of the norms of heads, the gradient norm, and the counts of tokens and
// microbatches.
TEST(Tensor, TalksTwiceALayerEachWay) {
  std::vector<std::vector<std::string>> events;
  Training run = on(four_heads("qwen3"), "single tp2");
  run.microbatches = run.steps = 1;
  run.events = &events;
  train(run);
  constexpr int kOnce = 1;  // before the first step: how norms are summed
  EXPECT_EQ(count(events[0], "all_reduce tp"), (4 + 1) + (4 + 1) + 3 + kOnce);
  EXPECT_EQ(count(events[0], "all_gather tp"), 1);
  EXPECT_EQ(count(events[0], "reduce_scatter tp"), 0);
  run.parallelizers = {{"tensor", kSequence}};
  train(run);
  EXPECT_EQ(count(events[0], "all_reduce tp"), 3 + kOnce);
  EXPECT_EQ(count(events[0], "all_gather tp"), (4 + 1 + 1) + (4 + 1));
  EXPECT_EQ(count(events[0], "reduce_scatter tp"), (4 + 1) + (4 + 1));
}

}  // namespace
}  // namespace heddle::tests
