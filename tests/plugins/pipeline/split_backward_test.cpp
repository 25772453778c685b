// Split backwards and recomputed units under every strategy give the bits of whole backwards of plain units.
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "plugins/by_hand.h"
#include "plugins/recording.h"
#include "plugins/toy_training.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("SplitBackward.EqualsTheBits*");

constexpr const char* kWhole = "F0 B0 F1 B1 F2 B2";
// Sequential, all inputs before all weights, several microbatches in flight, and whole and split ones mixed.
constexpr const char* kSplit[] = {"F0 I0 W0 F1 I1 W1 F2 I2 W2", "F0 F1 F2 I0 I1 I2 W0 W1 W2",
                                  "F0 F1 I0 I1 W0 F2 I2 W1 W2", "F0 F1 B0 I1 F2 W1 B2"};

using Gradients = std::map<std::string, at::Tensor>;

void expect_bits(const Gradients& got, const Gradients& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) EXPECT_TRUE(at::equal(got.at(name), tensor)) << name;
}

void expect_near(const Gradients& got, const Gradients& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want)
    EXPECT_TRUE(at::allclose(got.at(name), tensor, tolerance, tolerance)) << name;
}

ModelConfig shape_of(const std::string& architecture) {
  ModelConfig shape = odd_llama();
  shape.qkv_bias = architecture == "qwen2";
  shape.qk_norm = architecture == "qwen3";
  shape.output_bias = shape.mlp_bias = architecture == "llama with biases";
  shape.tie_word_embeddings = architecture == "qwen3";
  return shape;
}

Training split_under(const std::string& strategy, const std::string& section, int ranks) {
  Training run;
  run.strategy = strategy;
  run.section = section;
  if (strategy == "ddp") run.axes = {{"dp", ranks}};
  if (strategy == "fsdp2") run.axes = shards(ranks);
  run.microbatches = ranks == 3 ? 2 : 3;
  return run;
}

// Adapts an order to two microbatches, if three ranks split the twelve sequences.
std::string for_two(std::string order) {
  for (const char* gone : {"F2", "I2", "W2", "B2"})
    if (const size_t at = order.find(gone); at != order.npos) order.erase(at > 0 ? at - 1 : 0, 3);
  return order;
}

constexpr ActivationCheckpointing kCheckpointing[] = {
    ActivationCheckpointing::none, ActivationCheckpointing::full, ActivationCheckpointing::selective};

// `again`: tolerance for recomputed units; 0 if gradients are summed in the same order.
void expect_split_and_recomputed_are_whole(Training run, double again = 0) {
  const auto in_order = [&](const std::string& order) {
    run.order = run.microbatches == 2 ? for_two(order) : order;
    return gradients(run);
  };
  const Gradients want = in_order(kWhole);
  const auto expect = [&](const Gradients& got) {
    if (again > 0 && run.checkpointing != ActivationCheckpointing::none) return expect_near(got, want, again);
    expect_bits(got, want);
  };
  for (const auto checkpointing : kCheckpointing) {
    if (run.make_units && checkpointing == ActivationCheckpointing::selective) continue;  // foreign units
    run.checkpointing = checkpointing;
    expect(in_order(kWhole));
    for (const char* order : kSplit) {
      SCOPED_TRACE(std::string(order) + (checkpointing == ActivationCheckpointing::none ? "" : ", again"));
      expect(in_order(order));
    }
  }
}

TEST(SplitBackward, EqualsTheBitsOfAWholeOneForEveryArchitecture) {
  for (const char* architecture : {"llama", "llama with biases", "qwen2", "qwen3"}) {
    SCOPED_TRACE(architecture);
    Training run = split_under("single", "{}", 1);
    run.model = shape_of(architecture);
    expect_split_and_recomputed_are_whole(run);
  }
}

TEST(SplitBackward, EqualsTheBitsOfAWholeOneUnderDdpAndFsdp2) {
  for (const std::string& line : alternatives(
           "[ddp([|gradient_as_bucket_view: true|bucket_cap_mb: 0.001])|fsdp2(reshard_after_forward: "
           "[null|true|false])] dp[1 calls3|2 calls3|3 calls2]")) {
    SCOPED_TRACE(line);
    Training run = split_under("single", "{}", 1);
    run.model = shape_of(line.find("dp2 ") == line.npos ? "llama with biases" : "qwen3");
    expect_split_and_recomputed_are_whole(on(run, line));
  }
}

TEST(SplitBackward, EqualsTheBitsOfAWholeOneInMixedPrecisionAndUnderHybridSharding) {
  for (const std::string& line :
       {"fsdp2(" + kBfloat16 + ") dp1 calls3", "fsdp2(" + kBfloat16 + ") dp2 calls3",
        std::string("fsdp2 dp4 replicas2 calls3")}) {
    SCOPED_TRACE(line);
    Training run = split_under("single", "{}", 1);
    run.model = shape_of("qwen2");
    expect_split_and_recomputed_are_whole(on(run, line));
  }
}

TEST(SplitBackward, AgreesWithSingleWhenEachMicrobatchIsReduced) {
  Training single = split_under("single", "{}", 1);
  single.microbatches = 6;  // the same slices
  single.model = shape_of("qwen2");
  single.order = "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5";
  const Gradients want = gradients(single);
  for (const int replicas : {1, 2})
    for (const auto checkpointing : kCheckpointing)
      for (const char* order : kSplit) {
        SCOPED_TRACE(order);
        Training run = split_under("fsdp2", kFloat + "defer_fsdp_grad_sync: false", 2);
        run.axes = shards(2, replicas);
        run.microbatches = 3;
        run.model = single.model;
        run.order = order;
        run.checkpointing = checkpointing;
        expect_near(gradients(run), want, 2e-6);
      }
}

TEST(SplitBackward, ReducesOncePerStepOrMicrobatchAsConfigured) {
  std::vector<Events> events;
  for (const bool defer : {true, false}) {
    Training run = split_under("fsdp2", kFloat + "defer_fsdp_grad_sync: " + (defer ? "true" : "false"), 2);
    run.model = shape_of("llama");
    run.order = kSplit[1];
    run.events = &events;
    gradients(run);  // two steps of five units
    EXPECT_EQ(count(events[0], "reduce_scatter"), 2 * 5 * (defer ? 1 : 3));
    EXPECT_EQ(events[0], events[1]);
  }
}

// All reductions have started before the queue reports its end.
TEST(SplitBackward, ReducesWhileTheLastQueueIsDrained) {
  for (const std::string strategy : {"ddp", "fsdp2"}) {
    Training run = split_under(strategy, strategy == "ddp" ? "bucket_cap_mb: 0.002" : kFloat, 2);
    run.model = odd_llama();
    std::vector<Events> all;
    run.events = &all;
    const std::string call = strategy == "ddp" ? "all_reduce" : "reduce_scatter";
    on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
      const Events& events = all[mesh.rank("world")];
      ParallelStage& stage = *stages[0];
      Batch batch = toy_batch();
      WeightGradients queue;
      batch.weight_gradients = &queue;
      const at::Tensor loss = stage.forward({}, batch)[0];
      const int before = count(events, call);
      int drained = 0;
      queue.when_drained([&] { drained = count(events, call) - before; });
      queue.defer();
      loss.backward();
      EXPECT_EQ(count(events, call), before) << strategy;
      stage.expect_last_backward();
      queue.drain();
      EXPECT_GT(drained, 3) << strategy;
      EXPECT_EQ(count(events, call) - before, drained) << strategy;
      stage.finish_gradients();
      EXPECT_EQ(count(events, call) - before, drained) << strategy;
    });
  }
}

TEST(SplitBackward, TrainsFrozenForeignAndMissingParametersLikeAWholeOne) {
  Training frozen = split_under("fsdp2", kFloat, 2);
  frozen.model = shape_of("llama with biases");
  frozen.frozen = {"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight",
                   "model.layers.1.mlp.down_proj.bias"};
  expect_split_and_recomputed_are_whole(frozen);
  Toy shape;
  shape.meta = false;
  shape.foreign = true;
  for (const char* strategy : {"single", "ddp", "fsdp2"}) {
    SCOPED_TRACE(strategy);
    Training run = toy(strategy,
                       strategy == std::string("ddp")     ? std::vector<Axis>{{"dp", 2}}
                       : strategy == std::string("fsdp2") ? shards(2)
                                                          : std::vector<Axis>{},
                       "", shape);
    run.microbatches = 3;
    use_extra_where(run, {1, 0, -1, 1, 1, -1});
    expect_split_and_recomputed_are_whole(run);
  }
}

// Two recomputed layers share a weight. Its hook is called once in each of their backwards, and the sum over
// microbatches has another order.
TEST(SplitBackward, WaitsForEveryPartOfAParameterOfSeveralUnits) {
  for (const char* strategy : {"single", "ddp", "fsdp2"}) {
    SCOPED_TRACE(strategy);
    Training run = toy(strategy, strategy == std::string("ddp")     ? std::vector<Axis>{{"dp", 2}}
                                 : strategy == std::string("fsdp2") ? shards(2)
                                                                    : std::vector<Axis>{});
    if (strategy == std::string("ddp")) run.section = "bucket_cap_mb: 0";
    run.make_units = [](int) {
      Units units = toy_units({});
      toy_at(units, 3).own[0] = toy_at(units, 1).own[0];  // layer2.weight is layer0.weight
      return units;
    };
    run.microbatches = 3;
    expect_split_and_recomputed_are_whole(run, 1e-6);
  }
}

// When the gradient of layer0's input arrives, all later units are freed, although weight gradients are
// deferred.
TEST(SplitBackward, FreesUnitsThatTheBackwardOfInputsHasPassed) {
  on_toy_ranks(toy("fsdp2", shards(2)), [](const ToyRank& rank) {
    std::vector<size_t> bytes;
    rank.units[1]->before = [&](const Tensors& inputs) {
      inputs[0].register_hook([&](const at::Tensor&) {
        for (size_t above : {2, 3, 4}) bytes.push_back(rank.units[above]->bytes());
      });
    };
    run_by_hand(*rank.stages[0], std::vector<Batch>(2, toy_batch()), "F0 F1 I0 I1 W0 W1");
    rank.stages[0]->finish_gradients();
    EXPECT_EQ(bytes, std::vector<size_t>(6, 0));
  });
}

}  // namespace
}  // namespace heddle::tests
