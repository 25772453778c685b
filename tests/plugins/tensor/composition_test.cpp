// Tensor parallelism under every strategy, in evaluation and generation, and how often it talks.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "lib/run/generate/generate.h"
#include "plugins/tensor_training.h"

namespace heddle::tests {
namespace {

Training under(const std::string& strategy, std::vector<Axis> axes, const std::string& fields = kSequence) {
  Training run = four_heads("qwen3");
  run.microbatches = 3;
  run.strategy = strategy;
  if (strategy == "fsdp2") run.section = kFloat;
  run.axes = std::move(axes);
  run.parallelizers = {{"tensor", fields}};
  return run;
}

std::vector<Axis> fsdp2_axes(int replicas, int shards, int tp) {
  return {{"pp", 1}, {"dp_replicate", replicas}, {"dp_shard", shards}, {"cp", 1}, {"tp", tp}};
}

TEST(TensorWithFsdp2, EqualsOneRank) {
  const Outcome want = train(four_heads("qwen3"));
  for (const std::string& fields : {std::string("{}"), kSequence, kOverlapped}) {
    SCOPED_TRACE(fields);
    expect_close(train(under("fsdp2", fsdp2_axes(1, 2, 2), fields)), want);
  }
}

TEST(TensorWithFsdp2, EqualsOneRankWhereShardsAndPartsDoNotDivide) {
  Training run = four_heads();
  run.model.tie_word_embeddings = true;
  run.microbatches = 2;
  const Outcome want = train(run);
  Training split = under("fsdp2", fsdp2_axes(1, 3, 2));
  split.model = run.model;
  split.microbatches = 2;
  split.section = kFloat + "reshard_after_forward: true";
  expect_close(train(split), want);
}

TEST(TensorWithFsdp2, EqualsOneRankUnderHybridSharding) {
  expect_close(train(under("fsdp2", fsdp2_axes(2, 2, 2))), train(four_heads("qwen3")));
}

TEST(TensorWithFsdp2, TrainsInBfloat16AsOneRankDoes) {
  const std::string half = "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}";
  Training one = under("fsdp2", fsdp2_axes(1, 1, 1));
  one.section = half;
  one.parallelizers.clear();
  Training split = under("fsdp2", fsdp2_axes(1, 2, 2));
  split.section = half;
  const Outcome want = train(one), got = train(split);
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i] / want.losses[i], 1, 1e-2);
    EXPECT_NEAR(got.norms[i] / want.norms[i], 1, 5e-2);
  }
}

TEST(TensorWithDdp, EqualsOneRank) {
  const Outcome want = train(four_heads("qwen3"));
  for (const std::string& fields : {std::string("{}"), kSequence})
    expect_close(train(under("ddp", {{"dp", 2}, {"tp", 2}}, fields)), want);
}

TEST(TensorWithFrozenParameters, EqualsOneRank) {
  Training run = four_heads("qwen3");
  run.frozen = {"model.norm.weight", "model.layers.0.self_attn.q_norm.weight",
                "model.layers.1.mlp.gate_proj.weight", "model.layers.0.self_attn.o_proj.weight",
                "model.embed_tokens.weight"};
  const Outcome want = train(run);
  for (const std::string& fields : {std::string("{}"), kSequence, kOverlapped}) {
    SCOPED_TRACE(fields);
    expect_close(train(over_tp(run, 2, fields)), want);
  }
}

TEST(TensorWithActivationCheckpointing, EqualsOneRank) {
  const Outcome want = train(four_heads("qwen3"));
  for (const std::string& fields : {std::string("{}"), kSequence, kOverlapped}) {
    SCOPED_TRACE(fields);
    Training run = over_tp(four_heads("qwen3"), 2, fields);
    for (const auto mode : {ActivationCheckpointing::full, ActivationCheckpointing::selective}) {
      run.checkpointing = mode;
      expect_close(train(run), want);
    }
  }
}

// Norms on token rows are left out: their parts are summed by the step, which is not run here.
TEST(TensorWithSplitBackward, GivesTheBitsOfAWholeBackward) {
  for (const std::string& fields : {std::string("{}"), kSequence, kOverlapped}) {
    Training run = over_tp(four_heads("qwen2"), 2, fields);
    run.microbatches = 3;
    const auto in_order = [&](const std::string& order) {
      run.order = order;
      auto out = gradients(run);
      std::erase_if(out, [](const auto& entry) { return entry.first.find("norm") != std::string::npos; });
      return out;
    };
    const auto want = in_order("F0 B0 F1 B1 F2 B2");
    for (const char* order : {"F0 F1 F2 I0 I1 I2 W0 W1 W2", "F0 F1 B0 I1 F2 W1 B2"}) {
      SCOPED_TRACE(fields + ", " + order);
      const auto got = in_order(order);
      ASSERT_EQ(got.size(), want.size());
      for (const auto& [name, tensor] : want) EXPECT_TRUE(at::equal(got.at(name), tensor)) << name;
    }
  }
}

// A model that draws its values on the CPU without a seed has others on each rank.
TEST(Tensor, TrainsTheValuesOfTheFirstRankWhateverTheOthersDrew) {
  const auto drawn = [](Training run) {
    run.make_units = [model = run.model](int rank) {
      Units units = make_units(model, at::TensorOptions().dtype(at::kFloat).device(at::kCPU));
      for (const auto& unit : units)
        for (ParameterSlot& slot : unit->parameters())
          slot.tensor->detach().copy_(
              at::arange(slot.tensor->numel(), at::kFloat).sin().mul_(0.1).add_(rank).view_as(*slot.tensor));
      return units;
    };
    return run;
  };
  const Outcome want = train(drawn(four_heads("qwen3")));
  expect_close(train(drawn(over_tp(four_heads("qwen3"), 2))), want);
  expect_close(train(drawn(under("fsdp2", fsdp2_axes(1, 2, 2)))), want);
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
    for (const std::string& fields : {std::string("{}"), kSequence, kOverlapped}) {
      SCOPED_TRACE("tp " + std::to_string(tp) + ", " + fields);
      const Continued got = continued(over_tp(run, tp, fields), tp);
      EXPECT_EQ(got.tokens, want.tokens);
      EXPECT_TRUE(at::allclose(got.logits, want.logits, 1e-4, 1e-5));
    }
}

// Of two layers: attention and MLP each enter and leave once; then the embedding, the head, and one block of
// the loss. Once a step: the gradients of the norms of heads, and the gradient norm.
TEST(Tensor, TalksTwiceALayerEachWay) {
  std::vector<std::vector<std::string>> events;
  Training run = over_tp(four_heads("qwen3"), 2);
  run.microbatches = run.steps = 1;
  run.events = &events;
  train(run);
  constexpr int kOnce = 1;  // before the first step: how norms are summed
  EXPECT_EQ(count(events[0], "all_reduce tp"), (4 + 1) + (4 + 1) + 2 + kOnce);
  EXPECT_EQ(count(events[0], "all_gather tp"), 1);
  EXPECT_EQ(count(events[0], "reduce_scatter tp"), 0);
  run.parallelizers = {{"tensor", kSequence}};
  train(run);
  EXPECT_EQ(count(events[0], "all_reduce tp"), 2 + kOnce);
  EXPECT_EQ(count(events[0], "all_gather tp"), (4 + 1 + 1) + (4 + 1));
  EXPECT_EQ(count(events[0], "reduce_scatter tp"), (4 + 1) + (4 + 1));
}

}  // namespace
}  // namespace heddle::tests
