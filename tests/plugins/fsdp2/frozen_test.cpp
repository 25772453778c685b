// Frozen parameters have no gradient, no optimizer state and no reduction, wherever they are placed.
#include <gtest/gtest.h>

#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

const std::vector<std::string> kPlaces = {"root", "per_layer", "replicate"};

std::string sharding(const std::string& place) {
  return "multimodal: {frozen_sharding: " + place + "}\n";
}

// All parameters of layer1, and the embedding.
const std::vector<std::string> kNames = {"embed.weight", "layer1.weight", "layer1.bias", "layer1.scale",
                                         "layer1.extra"};

// Every large matrix is frozen, and small parameters are trained, as with LoRA.
const std::vector<std::string> kMix = {"embed.weight", "layer0.weight", "layer1.weight", "layer2.weight",
                                       "head.weight"};

Outcome frozen_alone(const std::vector<std::string>& frozen) {
  Training run = toy("single", {});
  run.frozen = frozen;
  return train(run);
}

TEST(Fsdp2Frozen, EqualsSingleOnOneRankUnevenRanksAndReplicas) {
  const Outcome want = frozen_alone(kNames);
  for (const std::string& place : kPlaces)
    for (const auto& [ranks, replicas] :
         {std::pair{1, 1}, std::pair{3, 1}, std::pair{4, 1}, std::pair{2, 2}}) {
      SCOPED_TRACE(place + ", " + std::to_string(ranks) + " ranks, " + std::to_string(replicas) +
                   " replicas");
      Training run = toy("fsdp2", shards(ranks, replicas), sharding(place) + "defer_fsdp_grad_sync: false\n");
      run.frozen = kNames;
      expect_close(train(run), want);
    }
}

TEST(Fsdp2Frozen, EqualsSingleInMixedPrecisionForEveryPlacement) {
  const std::string policy = "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}\n";
  Training whole = toy("fsdp2", shards(1), policy);
  whole.frozen = kNames;
  whole.microbatches = 2;
  const Outcome want = train(whole);
  for (const std::string& place : kPlaces) {
    SCOPED_TRACE(place);
    Training run = toy("fsdp2", shards(2), policy + sharding(place));
    run.frozen = kNames;
    expect_close(train(run), want);
  }
}

// Returns the collectives of one step of two microbatches on two ranks.
Events collectives(const std::string& section, const std::vector<std::string>& frozen) {
  Training run = toy("fsdp2", shards(2), section);
  run.microbatches = 2;
  run.frozen = frozen;
  return events_of(run);
}

TEST(Fsdp2Frozen, DoesNotReduceFrozenParameters) {
  EXPECT_EQ(count(collectives("", {}), "reduce_scatter"), 5);
  for (const std::string& place : kPlaces)
    EXPECT_EQ(count(collectives(sharding(place), kNames), "reduce_scatter"), 3) << place;
  // A layer has 36 + 6 + 1 + 6 elements. Only bias, scale and extra are reduced, with one flag each.
  const Events mix = collectives("", kMix);
  EXPECT_EQ(count(mix, "reduce_scatter"), 3);
  const Events all = collectives("", {});
  const auto largest = [](const Events& events) {
    int most = 0;
    for (const std::string& event : events)
      if (event.rfind("reduce_scatter", 0) == 0)
        most = std::max(most, std::stoi(event.substr(event.rfind(' '))));
    return most;
  };
  EXPECT_LT(largest(mix), largest(all));
}

// Two microbatches of forward and backward over five units. The embedding has no backward, layer1 has one,
// and the head stays whole after its forward.
TEST(Fsdp2Frozen, GathersFrozenUnitsByPlacement) {
  const int trained = 2 * (2 + 2 + 1);  // layer0, layer2, head
  EXPECT_EQ(count(collectives(sharding("root"), kNames), "all_gather"), trained + 2);
  EXPECT_EQ(count(collectives(sharding("per_layer"), kNames), "all_gather"), trained + 2 * (1 + 2));
  EXPECT_EQ(count(collectives(sharding("replicate"), kNames), "all_gather"), trained);
}

TEST(Fsdp2Frozen, KeepsNoGradientsAndShardsByPlacement) {
  for (const std::string& place : kPlaces) {
    Training run = toy("fsdp2", shards(2), sharding(place));
    run.frozen = kNames;
    on_ranks(run, [&](Stages& stages, const DeviceMesh&) {
      toy_step(stages);
      for (const Shard& shard : stages.front()->owned()) {
        const bool frozen = std::count(kNames.begin(), kNames.end(), shard.name) != 0;
        EXPECT_EQ(shard.tensor.requires_grad(), !frozen) << shard.name;
        EXPECT_EQ(shard.tensor.grad().defined(), !frozen) << shard.name;
        const bool whole = frozen && place == "replicate";
        EXPECT_EQ(shard.axes.empty(), whole) << shard.name;
        if (shard.shape[0] > 1) {
          EXPECT_EQ(shard.tensor.sizes().vec() == shard.shape, whole) << shard.name;
        }
      }
    });
  }
}

TEST(Fsdp2Frozen, CopiesAForeignFrozenUnitFromTheFirstRank) {
  const Toy foreign{.meta = false, .foreign = true};
  Training whole = toy("single", {}, "", foreign);
  whole.frozen = kNames;
  const Outcome want = train(whole);
  for (const int replicas : {1, 2}) {
    Training run = toy("fsdp2", shards(2, replicas), sharding("replicate"), foreign);
    run.frozen = kNames;
    run.make_units = [foreign](int rank) {
      Units units = toy_units(foreign);
      if (rank > 0) toy_at(units, 0).own[0].tensor.detach().fill_(9);
      return units;
    };
    expect_close(train(run), want);
  }
}

TEST(Fsdp2Frozen, TrainsATiedHeadWhoseTableIsFrozen) {
  Toy tied{.tied = true};
  Training whole = toy("single", {}, "", tied);
  whole.frozen = {"embed.weight"};
  const Outcome want = train(whole);
  for (const std::string& place : kPlaces)
    for (const char* reshard : {"null", "true"}) {
      Training run =
          toy("fsdp2", shards(2), sharding(place) + "reshard_after_forward: " + reshard + "\n", tied);
      run.frozen = {"embed.weight"};
      expect_close(train(run), want);
    }
}

}  // namespace
}  // namespace heddle::tests
