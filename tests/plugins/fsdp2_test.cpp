// fsdp2's own behaviour: rows, reshard rule, memory, order of collectives, missing gradients, errors.
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "plugins/fsdp2/layout.h"
#include "plugins/toy_units.h"
#include "plugins/training_world.h"

namespace heddle::testing {
namespace {

using fsdp2::Rows;
using fsdp2::Stay;

const std::string kFloat = "mp_policy: {param_dtype: float32, reduce_dtype: float32}\n";

Training toy(const std::string& strategy, std::vector<Axis> axes, const std::string& more = "",
             Toy shape = {}) {
  Training run;
  run.strategy = strategy;
  run.section =
      strategy == "fsdp2" ? (more.find("mp_policy") == std::string::npos ? kFloat : "") + more : "{}";
  run.axes = std::move(axes);
  run.model.vocab_size = Toy::kVocabulary;
  run.make_units = [shape](int) { return toy_units(shape); };
  return run;
}

std::vector<Axis> shards(int ranks, int replicas = 1) {
  return {{"pp", 1}, {"dp_replicate", replicas}, {"dp_shard", ranks}, {"cp", 1}, {"tp", 1}};
}

int count(const Events& events, const std::string& start) {
  return static_cast<int>(std::count_if(events.begin(), events.end(),
                                        [&](const std::string& e) { return e.rfind(start, 0) == 0; }));
}

void expect_same(const std::map<std::string, at::Tensor>& got,
                 const std::map<std::string, at::Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) EXPECT_TRUE(at::allclose(got.at(name), tensor, 1e-5, 1e-7)) << name;
}

TEST(Fsdp2Rows, AreChunksWhoseLastOnesMayBeEmpty) {
  EXPECT_EQ(fsdp2::rows_of(10, 4, 0), (Rows{0, 3}));
  EXPECT_EQ(fsdp2::rows_of(10, 4, 3), (Rows{9, 1}));
  EXPECT_EQ(fsdp2::rows_of(5, 4, 2), (Rows{4, 1}));
  EXPECT_EQ(fsdp2::rows_of(5, 4, 3), (Rows{5, 0}));
  EXPECT_EQ(fsdp2::rows_of(1, 4, 1), (Rows{1, 0}));
  EXPECT_EQ(fsdp2::rows_of(0, 4, 0), (Rows{0, 0}));
}

TEST(Fsdp2Reshard, FreesEveryUnitButTheLastUnlessAsked) {
  EXPECT_EQ(fsdp2::stays(3, std::nullopt, 1),
            (std::vector<Stay>{Stay::not_at_all, Stay::not_at_all, Stay::until_gradients}));
  EXPECT_EQ(fsdp2::stays(1, std::nullopt, 1), std::vector<Stay>{Stay::until_gradients});
  EXPECT_TRUE(fsdp2::stays(0, std::nullopt, 1).empty());
  EXPECT_EQ(fsdp2::stays(2, true, 1), std::vector<Stay>(2, Stay::not_at_all));
  EXPECT_EQ(fsdp2::stays(2, false, 1), std::vector<Stay>(2, Stay::until_last_backward));
  EXPECT_EQ(fsdp2::stays(2, std::nullopt, 4), std::vector<Stay>(2, Stay::until_last_backward));
  EXPECT_EQ(fsdp2::stays(2, true, 4), std::vector<Stay>(2, Stay::not_at_all));
}

TEST(Fsdp2, TrainsTenRowsAndOneRowOverFourRanks) {
  const Outcome want = train(toy("single", {}));
  for (const int ranks : {2, 3, 4}) expect_close(train(toy("fsdp2", shards(ranks))), want);
}

TEST(Fsdp2, OwnsEveryRowOnceAndSaysWhichAxisSplitsIt) {
  std::mutex lock;
  std::map<std::string, int64_t> rows;
  Events boxes;
  ThreadWorld::run(4, [&](Rendezvous& meeting) {
    const DeviceMesh mesh = mesh::build(shards(4), meeting, "test: world");
    auto stage = make_strategy("fsdp2", kFloat)->parallelize(toy_units({}), mesh, {});
    const std::lock_guard held(lock);
    for (const Shard& shard : stage->owned()) {
      rows[shard.name] += shard.tensor.size(0);
      EXPECT_EQ(shard.axes, std::vector<std::string>{"dp_shard"});
      EXPECT_TRUE(shard.tensor.requires_grad());
      if (shard.name == "embed.weight" && mesh.rank("dp_shard") == 3) {
        EXPECT_EQ(shard.shape, (std::vector<int64_t>{10, 6}));
        EXPECT_EQ(shard.offset, (std::vector<int64_t>{9, 0}));
      }
    }
    EXPECT_EQ(stage->owned().size(), 14u);
  });
  EXPECT_EQ(rows["embed.weight"], 10);
  EXPECT_EQ(rows["layer0.scale"], 1);
  EXPECT_EQ(rows["layer2.bias"], 6);
}

TEST(Fsdp2, HybridShardingAndDdpGiveTheSameGradients) {
  const auto want = gradients(toy("single", {}));
  expect_same(gradients(toy("fsdp2", shards(4))), want);
  expect_same(gradients(toy("fsdp2", shards(2, 2))), want);
  expect_same(gradients(toy("ddp", {{"dp", 4}})), want);
}

TEST(Fsdp2, GivesTheSameGradientsWheneverTheyAreReduced) {
  const auto want = gradients(toy("single", {}));
  for (const char* defer : {"true", "false"})
    for (const int microbatches : {1, 3})
      for (const int replicas : {1, 2}) {
        Training run = toy("fsdp2", shards(2, replicas), std::string("defer_fsdp_grad_sync: ") + defer);
        run.microbatches = microbatches;
        expect_same(gradients(run), want);
      }
}

TEST(Fsdp2, ReducesOnceAStepOrOnceAMicrobatchAsAsked) {
  std::vector<Events> events;
  for (const bool defer : {true, false}) {
    Training run =
        toy("fsdp2", shards(2, 2), std::string("defer_fsdp_grad_sync: ") + (defer ? "true" : "false"));
    run.microbatches = 3;
    run.events = &events;
    gradients(run);
    EXPECT_EQ(count(events[0], "reduce_scatter"), 5 * (defer ? 1 : 3));
    EXPECT_EQ(count(events[0], "all_reduce dp_replicate"), 5);
  }
}

// The embedding and the head are units of their own: 10 rows of 6 over 2 ranks, and a count of gradients
// each.
TEST(Fsdp2, ReducesNoMoreThanOneTableAtATime) {
  std::vector<Events> events;
  Training run = toy("fsdp2", shards(2));
  run.events = &events;
  gradients(run);
  std::vector<std::string> sums;
  for (const std::string& event : events[0])
    if (event.rfind("reduce_scatter", 0) == 0) sums.push_back(event);
  ASSERT_EQ(sums.size(), 5u);
  EXPECT_EQ(sums.front(), "reduce_scatter dp_shard 62");
  EXPECT_EQ(sums.back(), "reduce_scatter dp_shard 62");
}

// What ranks do in one step: collectives and the units' forwards, in order.
Events story(const std::string& more, Toy shape = {}) {
  std::vector<Events> events;
  Training run = toy("fsdp2", shards(2), more);
  run.events = &events;
  run.make_units = [&events, shape](int rank) {
    Toy recorded = shape;
    recorded.events = &events[rank];
    return toy_units(recorded);
  };
  gradients(run);
  Events out;
  for (const std::string& event : events[0]) out.push_back(event.substr(0, event.find(" dp_shard")));
  return out;
}

TEST(Fsdp2, GathersTheNextUnitBeforeThisOneRuns) {
  const std::string gather = "all_gather", reduce = "reduce_scatter";
  EXPECT_EQ(story(""), (Events{gather, gather, "forward embed", gather, "forward layer0", gather,
                               "forward layer1", gather, "forward layer2", "forward head", gather, reduce,
                               gather, reduce, gather, reduce, gather, reduce, reduce}));
}

TEST(Fsdp2, GathersOnceAStepWhenNothingIsResharded) {
  EXPECT_EQ(count(story("reshard_after_forward: false"), "all_gather"), 5);
  EXPECT_EQ(count(story("reshard_after_forward: true"), "all_gather"), 10);
}

TEST(Fsdp2, GathersATiedTableAgainForTheHead) {
  Toy tied;
  tied.tied = true;
  EXPECT_EQ(count(story("", tied), "all_gather"), 5 + 3);
  EXPECT_EQ(count(story("", tied), "reduce_scatter"), 4);
}

// Bytes of whole parameters on each rank after the forward, and after the backward.
void expect_bytes(const std::string& more, const std::vector<bool>& after_forward) {
  ThreadWorld::run(2, [&](Rendezvous& meeting) {
    const DeviceMesh mesh = mesh::build(shards(2), meeting, "test: world");
    Units units = toy_units({});
    std::vector<ToyUnit*> seen;
    for (size_t i = 0; i < units.size(); ++i) seen.push_back(&toy_at(units, i));
    Plan plan;
    plan.strategy = make_strategy("fsdp2", kFloat + more);
    Stages stages = parallel::build(std::move(units), plan, mesh, {}, 7);
    for (ToyUnit* unit : seen) EXPECT_EQ(unit->bytes(), 0u) << unit->name();
    Batch batch;
    batch.tokens = batch.labels = at::full({2, 3}, 4, at::kLong);
    stages[0]->expect_last_backward();
    const at::Tensor loss = stages[0]->forward({}, batch)[0];
    for (size_t i = 0; i < seen.size(); ++i)
      EXPECT_EQ(seen[i]->bytes() > 0, after_forward[i]) << seen[i]->name();
    loss.backward();
    for (ToyUnit* unit : seen) EXPECT_EQ(unit->bytes(), 0u) << unit->name();
    stages[0]->finish_gradients();
  });
}

TEST(Fsdp2, FreesWholeParametersAfterForwardAndAfterBackward) {
  expect_bytes("", {false, false, false, false, true});
  expect_bytes("reshard_after_forward: true", {false, false, false, false, false});
  expect_bytes("reshard_after_forward: false", {true, true, true, true, true});
}

// Slices 0 and 1 are the two ranks, or the two microbatches of one rank.
void use_extra_where(Training& run, const std::vector<double>& used) {
  run.change_batch = [used](Batch& batch, int slice) {
    batch.extra = at::full({1}, used[slice], at::kFloat);
  };
}

TEST(Fsdp2, CountsAParameterUnusedOnOneRankAsZeroThere) {
  for (const std::vector<double>& used : {std::vector<double>{1, 0}, {0, 1}}) {
    Training whole = toy("single", {});
    whole.microbatches = 2;
    use_extra_where(whole, used);
    const Outcome want = train(whole);
    for (const char* reshard : {"null", "true", "false"}) {
      Training run = toy("fsdp2", shards(2), std::string("reshard_after_forward: ") + reshard);
      use_extra_where(run, used);
      expect_close(train(run), want);
    }
    Training run = toy("ddp", {{"dp", 2}});
    use_extra_where(run, used);
    expect_close(train(run), want);
  }
}

TEST(Fsdp2, LeavesAParameterThatNoRankUsedWithoutAGradient) {
  Training whole = toy("single", {});
  use_extra_where(whole, {0});
  const auto want = gradients(whole);
  EXPECT_EQ(want.count("layer1.extra"), 0u);
  for (Training run : {toy("fsdp2", shards(2)), toy("fsdp2", shards(1)), toy("ddp", {{"dp", 2}}),
                       toy("fsdp2", shards(1), "mp_policy: {param_dtype: float32, reduce_dtype: float64}")}) {
    use_extra_where(run, {0, 0});
    expect_same(gradients(run), want);
  }
}

TEST(Fsdp2, TrainsAForeignModelInPlace) {
  Toy foreign;
  foreign.meta = false;
  foreign.foreign = true;
  const Outcome want = train(toy("single", {}, "", foreign));
  for (const int ranks : {1, 2, 3}) expect_close(train(toy("fsdp2", shards(ranks), "", foreign)), want);
  Toy tied = foreign;
  tied.tied = true;
  expect_close(train(toy("fsdp2", shards(2), "", tied)), train(toy("single", {}, "", tied)));
}

TEST(Ddp, StartsAForeignModelFromTheValuesOfRankZero) {
  Toy foreign;
  foreign.meta = false;
  foreign.foreign = true;
  Training run = toy("ddp", {{"dp", 2}});
  run.make_units = [foreign](int rank) {
    Toy mine = foreign;
    mine.shift = rank;
    return toy_units(mine);
  };
  expect_close(train(run), train(toy("single", {}, "", foreign)));
}

TEST(Fsdp2, MakesTheReplicasOfAForeignModelEqual) {
  Toy foreign;
  foreign.meta = false;
  foreign.foreign = true;
  Training run = toy("fsdp2", shards(2, 2));
  run.make_units = [foreign](int rank) {
    Toy mine = foreign;
    mine.shift = rank / 2;  // the second replica
    return toy_units(mine);
  };
  expect_close(train(run), train(toy("single", {}, "", foreign)));
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Fsdp2, RefusesAParameterWithoutDims) {
  const std::string got = error_of([] {
    Training run = toy("fsdp2", shards(2));
    run.make_units = [](int) {
      Units units = toy_units({});
      at::Tensor& scale = toy_at(units, 1).own[2].tensor;
      scale = scale.detach().squeeze().set_requires_grad(true);
      return units;
    };
    gradients(run);
  });
  EXPECT_EQ(got,
            "error[input] fsdp2: parameter 'layer0.scale' has no dim that could be split\n"
            "  hint: give it the shape [1], or use a strategy that keeps parameters whole");
}

TEST(Fsdp2, RefusesForeignTensorsThatCannotBeTied) {
  for (const char* strategy : {"fsdp2", "ddp"}) {
    const std::string got = error_of([&] {
      Training run = toy(strategy, strategy == std::string("ddp") ? std::vector<Axis>{{"dp", 1}} : shards(1));
      run.make_units = [](int) {
        Toy foreign;
        foreign.meta = false;
        foreign.foreign = true;
        Units units = toy_units(foreign);
        toy_at(units, 4).own[0].name = "embed.weight";
        return units;
      };
      gradients(run);
    });
    EXPECT_EQ(got,
              std::string("error[input] ") + strategy +
                  ": parameter 'embed.weight' has two slots with two tensors, which cannot be tied in place\n"
                  "  hint: let both modules hold one tensor, or give the slots two names");
  }
}

TEST(Fsdp2, RefusesADtypeThatHoldsNoGradients) {
  EXPECT_EQ(
      error_of([] { gradients(toy("fsdp2", shards(1), "mp_policy: {param_dtype: int32}")); }),
      "error[config] distributed.mp_policy: 'int32' is no dtype that parameters and gradients can have\n"
      "  hint: use float32, bfloat16, float16 or float64");
}

TEST(Fsdp2, SaysWhichSizesItDoesNotTake) {
  const Needs needs = make_strategy("fsdp2", "{}")->needs();
  EXPECT_EQ(needs.axes, (std::vector<std::string>{"pp", "dp_replicate", "dp_shard", "cp", "tp"}));
  Sizes sizes;
  sizes.world = sizes.dp = sizes.dp_replicate = 4;
  EXPECT_EQ(needs.sizes_rule(sizes),
            "dp_replicate_size=4 must be less than dp_size=4 since DDP usecase is not supported by FSDP2");
  sizes.dp_replicate = 1;
  sizes.dp = sizes.dp_shard = 8;
  sizes.ep = 3;
  EXPECT_EQ(needs.sizes_rule(sizes), "non_pp_size=8 must be a multiple of ep_size=3");
  sizes.ep = 2;
  EXPECT_EQ(needs.sizes_rule(sizes), "");
}

}  // namespace
}  // namespace heddle::testing
