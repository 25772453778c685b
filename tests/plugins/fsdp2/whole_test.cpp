// Whole parameters for a scope: no gathers inside, freed at its end, however it ends.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <stdexcept>
#include <string>

#include "heddle/parallel/stages.h"
#include "lib/run/generate/generate.h"
#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

void in_world(int ranks, const std::string& section, const std::function<void(const ToyRank&)>& body) {
  on_toy_ranks(toy("fsdp2", shards(ranks), section), body);
}

Batch some_tokens() {
  Batch batch = toy_batch();
  batch.labels = at::Tensor();
  return batch;
}

at::Tensor logits(Stages& stages) {
  const at::NoGradGuard no_gradients;
  return stages.front()->forward({}, some_tokens())[0];
}

void expect_freed(const std::vector<ToyUnit*>& units) {
  for (ToyUnit* unit : units) EXPECT_EQ(unit->bytes(), 0u) << unit->name();
}

TEST(Fsdp2Whole, GathersOnceForAScopeOfForwards) {
  for (const char* reshard : {"null", "true", "false"})
    in_world(2, std::string("reshard_after_forward: ") + reshard, [](const ToyRank& seen) {
      const at::Tensor want = logits(seen.stages);
      seen.stages.front()->parameters_changed(ParametersChange::updated);
      {
        Unsharded whole(seen.stages);
        seen.events.clear();
        for (int i = 0; i < 3; ++i) {
          seen.stages.front()->unshard();
          EXPECT_TRUE(at::equal(logits(seen.stages), want));
          seen.stages.front()->reshard();  // a schedule calls it at the end of a call
        }
        EXPECT_EQ(count(seen.events, "all_gather"), 0);
        for (ToyUnit* unit : seen.units) EXPECT_GT(unit->bytes(), 0u);
      }
      expect_freed(seen.units);
      EXPECT_TRUE(at::equal(logits(seen.stages), want));
    });
}

TEST(Fsdp2Whole, ReturnsEveryParameterOnceWithItsValues) {
  for (const int ranks : {1, 2, 3, 4})
    in_world(ranks, "", [](const ToyRank& seen) {
      Unsharded whole(seen.stages);
      ASSERT_EQ(whole.parameters().size(), 14u);
      for (const WholeParameter& parameter : whole.parameters()) {
        Shard shard;
        shard.name = parameter.name;
        shard.tensor = at::full(parameter.tensor.sizes(), 0.0);
        shard.shape = parameter.tensor.sizes().vec();
        shard.offset.assign(shard.shape.size(), 0);
        for (const Shard& owned : seen.stages.front()->owned())
          if (owned.name == parameter.name) shard.init = owned.init;
        parallel::initialise(shard, 7);
        EXPECT_TRUE(at::equal(parameter.tensor, shard.tensor)) << parameter.name;
        EXPECT_FALSE(parameter.tensor.requires_grad());
      }
    });
}

struct Failing : torch::autograd::FunctionPostHook {
  torch::autograd::variable_list operator()(const torch::autograd::variable_list&,
                                            const torch::autograd::variable_list&) override {
    throw std::runtime_error("a node fails");
  }
};

TEST(Fsdp2Whole, ReturnsParametersInTheDtypeOfTheModel) {
  for (const int ranks : {1, 2})
    in_world(ranks, "mp_policy: {param_dtype: bfloat16}", [](const ToyRank& seen) {
      Unsharded whole(seen.stages);
      for (const WholeParameter& parameter : whole.parameters()) {
        EXPECT_EQ(parameter.tensor.scalar_type(), at::kBFloat16);
        EXPECT_GT(parameter.tensor.abs().max().item<double>(), 0) << parameter.name;
      }
    });
}

TEST(Fsdp2Whole, IsReleasedWhenAnExceptionEndsTheScope) {
  in_world(2, "", [](const ToyRank& seen) {
    try {
      Unsharded outer(seen.stages);
      try {
        seen.units[3]->before = [](const Tensors&) { throw std::runtime_error("a unit fails"); };
        logits(seen.stages);
        FAIL() << "the unit did not fail";
      } catch (const Error& error) {
        EXPECT_NE(error.message().find("a unit fails"), std::string::npos);
        seen.units[3]->before = nullptr;
        logits(seen.stages);  // the scope still holds the parameters
        throw std::logic_error("the host gives up");
      }
    } catch (const std::logic_error&) {
    }
    expect_freed(seen.units);
    logits(seen.stages);  // the stage works as before
  });
}

TEST(Fsdp2Whole, RefusesAForwardWithGradientsInTheScope) {
  in_world(2, "", [](const ToyRank& seen) {
    Unsharded whole(seen.stages);
    EXPECT_EQ(error_of([&] { seen.stages.front()->forward({}, some_tokens()); }),
              "error[internal] fsdp2: a forward with gradients ran while parameters are held whole\n"
              "  hint: end the scope Unsharded before training goes on");
  });
}

const std::string kFsdp2Threw = "error[plugin_failed] " HEDDLE_BINARY_DIR
                                "/plugins/libheddle_fsdp2.so: the plugin 'fsdp2' 0.1.0 threw while it ran ";

TEST(Fsdp2Whole, RefusesANestedScopeAndAnUpdateInTheScope) {
  in_world(2, "", [](const ToyRank& seen) {
    Unsharded whole(seen.stages);
    EXPECT_EQ(error_of([&] { Unsharded inner(seen.stages); }),
              kFsdp2Threw +
                  "hold_whole(): parameters are held whole already\n"
                  "  hint: use the existing scope Unsharded; it does not nest");
    EXPECT_EQ(error_of([&] { seen.stages.front()->parameters_changed(ParametersChange::updated); }),
              kFsdp2Threw +
                  "parameters_changed(): parameters changed while they are held whole\n"
                  "  hint: end the scope Unsharded before the optimizer steps");
    logits(seen.stages);  // still whole
  });
}

TEST(Fsdp2Whole, RefusesAForwardAfterABackwardThatThrew) {
  in_world(2, "", [](const ToyRank& seen) {
    const Tensors outputs = seen.stages.front()->forward({}, some_tokens());
    for (const at::Tensor& output : outputs)
      if (output.requires_grad())
        output.grad_fn()->next_edge(0).function->add_post_hook(std::make_unique<Failing>());
    EXPECT_THROW(at::Tensor(outputs[0].sum()).backward(), std::runtime_error);
    EXPECT_EQ(
        error_of([&] { seen.stages.front()->forward({}, some_tokens()); }),
        "error[internal] fsdp2: a forward with gradients follows a backward that did not end\n"
        "  hint: the backward threw, and gradients are not whole: end the run, or build the model anew");
  });
}

// The second rank leaves during the gather. The first rank gets the error and holds nothing.
TEST(Fsdp2Whole, HoldsNothingWhenAGatherFails) {
  bool freed = false;
  std::string error;
  try {
    in_world(2, "", [&](const ToyRank& seen) {
      if (seen.mesh.rank("world") == 1) return;
      error = error_of([&] { Unsharded whole(seen.stages); });
      freed = true;
      for (ToyUnit* unit : seen.units) freed = freed && unit->bytes() == 0;
    });
  } catch (const Error&) {
  }
  EXPECT_EQ(error.rfind("error[rank_lost]", 0), 0u) << error;
  EXPECT_TRUE(freed);
}

// Each token needs a whole forward, and none of them gathers.
TEST(Fsdp2Whole, SamplesTheTokensOfOneRankWithOneGatherPerUnit) {
  Training run;
  run.model = odd_llama();
  run.section = kFloat;
  const auto sample = [&](const std::string& strategy, int ranks) {
    std::vector<int64_t> tokens;
    ThreadWorld::run(ranks, [&](Rendezvous& rendezvous) {
      Events events;
      RecordingRendezvous recording(rendezvous, &events);
      const DeviceMesh mesh = mesh::build(shards(ranks), recording, "test: world");
      Training mine = run;
      mine.strategy = strategy;
      if (strategy == "single") mine.section = "{}";
      Stages stages = build(mine, mesh);
      events.clear();
      const Unsharded whole(stages);
      const Logits logits = [&](const Batch& batch) { return stages.front()->forward({}, batch).front(); };
      const auto out = generate(logits, {1, 2, 3}, 12, Sampling{0.8, 20, 0}, 5);
      EXPECT_EQ(count(events, "all_gather"), ranks == 1 ? 0 : 5);
      if (mesh.rank("world") == 0) tokens = out;
    });
    return tokens;
  };
  const std::vector<int64_t> want = sample("single", 1);
  ASSERT_EQ(want.size(), 15u);
  for (const int ranks : {1, 2, 3}) EXPECT_EQ(sample("fsdp2", ranks), want) << ranks;
}

TEST(Fsdp2Whole, DoesNotAffectTraining) {
  const auto steps = [](bool looks) {
    std::vector<double> losses;
    in_world(2, "", [&](const ToyRank& seen) {
      Step step(seen.stages, seen.mesh, {});
      Batch batch = some_tokens();
      batch.labels = batch.tokens;
      for (int i = 0; i < 4; ++i) {
        const double loss = step.run({{batch}}, 0.1, 0).loss.item<double>();
        if (seen.mesh.rank("world") == 0) losses.push_back(loss);
        if (!looks) continue;
        Unsharded whole(seen.stages);
        logits(seen.stages);
      }
    });
    return losses;
  };
  const auto want = steps(false);
  ASSERT_LT(want.back(), want.front());
  EXPECT_EQ(steps(true), want);
}

}  // namespace
}  // namespace heddle::tests
