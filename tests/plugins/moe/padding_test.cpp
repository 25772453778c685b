// Padding has no effect on a mixture: wider rows, and rows and microbatches of only padding, give equal
// results on any topology.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "plugins/moe/runs.h"

namespace heddle::tests {
namespace {

using Form = model::BalanceLoss::Form;

// Uses every loss, and a correction bias that is updated.
Training routed(Form form = Form::layer) {
  Training run = sigmoid_model("glm4_moe");
  run.model.mixture.router.balance = {form, 0.1};
  run.model.mixture.router.z_loss = 0.01;
  return run;
}

// Equal texts have equal router weights, and rounding decides which of them an expert drops. With two
// different tokens at the start of each row, no two positions have equal texts.
void begin_differently(Batch& batch, int) {
  const int64_t rows = batch.tokens.size(0);
  batch.tokens.narrow(1, 0, 2).copy_(at::arange(2 * rows).view({rows, 2}));
}

// Adds five columns and a row of padding.
void widen(Batch& batch) {
  const int64_t rows = batch.tokens.size(0), length = batch.tokens.size(1);
  const auto wide = [&](const at::Tensor& x, int64_t value) {
    const at::Tensor out = at::full({rows + 1, length + 5}, value, x.options());
    out.narrow(0, 0, rows).narrow(1, 0, length).copy_(x);
    return out;
  };
  batch.padding = wide(at::zeros({rows, length}, at::kBool), 1);
  batch.tokens = wide(batch.tokens, 0);
  batch.labels = wide(batch.labels, Batch::kIgnore);
}

// Slices 1 and 3 have less text, and slice 2 has none.
void pad_some(Batch& batch, int slice) {
  batch.padding = at::zeros(batch.tokens.sizes(), at::kBool);
  if (slice == 2) batch.padding.fill_(true);
  if (slice % 2 == 1) batch.padding.narrow(0, 0, 1).narrow(1, 4, 3).fill_(true);
  if (slice == 1) batch.padding.narrow(0, 2, 1).fill_(true);
  batch.labels.masked_fill_(batch.padding, Batch::kIgnore);
  batch.tokens.masked_fill_(batch.padding, 0);
}

TEST(Padding, HasNoEffectInWiderRows) {
  for (const Form form : {Form::layer, Form::sequence, Form::global, Form::model}) {
    SCOPED_TRACE(static_cast<int>(form));
    const Outcome want = train(routed(form));
    Training wide = routed(form);
    wide.change_batch = [](Batch& batch, int) { widen(batch); };
    const Outcome got = train(wide);
    expect_close(got, want);
    EXPECT_EQ(got.sides.at("moe/load_1"), want.sides.at("moe/load_1"));
  }
}

TEST(Padding, UsesNoCapacity) {
  for (const char* drop_by : {"weight", "position"}) {
    const std::string block = std::string("capacity_factor: 1.0, drop_by: ") + drop_by;
    Training narrow = on(routed(), "ddp dp2 ep2(" + block + ")"), wide = narrow;
    narrow.change_batch = begin_differently;
    wide.change_batch = [](Batch& batch, int slice) {
      begin_differently(batch, slice);
      widen(batch);
    };
    const Outcome want = train(narrow), got = train(wide);
    expect_close(got, want);
    EXPECT_EQ(got.sides.at("moe/dropped_choices"), want.sides.at("moe/dropped_choices"));
  }
}

TEST(Padding, EqualsOneRankOnEveryTopology) {
  Training one = routed();
  one.change_batch = pad_some;
  expect_equal_on(one, {"ddp dp4", "ddp dp2 ep2" + kWays, "fsdp2 cp3(allgather)", "fsdp2 pp2(1f1b) calls4"});
}

TEST(Padding, DoesNotAffectMicrobatchesWithText) {
  Training some = routed();
  some.change_batch = [](Batch& batch, int slice) {
    if (slice != 2) return;
    batch.padding = at::full(batch.tokens.sizes(), true, at::kBool);
    batch.labels.fill_(Batch::kIgnore);
  };
  Training fewer = some;  // the same without that microbatch
  fewer.sequences = 9, fewer.microbatches = 3;
  fewer.change_batch = nullptr;
  // Rows 0 to 5 are equal. The losses of their routers alone cannot be compared, so all rows are set to equal
  // values.
  const auto same_rows = [](Batch& batch, int) {
    batch.tokens = batch.tokens.narrow(0, 0, 1).mul(0).add(3).expand({3, -1}).contiguous();
    batch.labels = batch.tokens.clone();
  };
  fewer.change_batch = same_rows;
  const auto padded = some.change_batch;
  some.change_batch = [=](Batch& batch, int slice) {
    same_rows(batch, slice);
    padded(batch, slice);
  };
  expect_close(train(some), train(fewer));
}

TEST(Capacity, AppliesOnOneRankAsOnTwo) {
  const std::string block = "capacity_factor: 0.5";
  Training alone = routed();
  alone.change_batch = begin_differently;
  const Training two = on(alone, "ddp dp2 ep2(" + block + ")");
  const Training none = alone;
  alone.parallelizers.emplace_back("moe", "moe: {" + block + "}");
  const Outcome want = train(alone);
  EXPECT_GT(std::abs(want.losses[0] - train(none).losses[0]), 1e-6);
  const Outcome got = train(two);
  expect_close(got, want);
  EXPECT_GT(want.sides.at("moe/dropped_choices")[0], 0);
  EXPECT_EQ(got.sides.at("moe/dropped_choices"), want.sides.at("moe/dropped_choices"));
  const double choices = 2 * 3 * 84;  // layers, choices per token, tokens per step
  EXPECT_NEAR(want.sides.at("moe/dropped_fraction")[0], want.sides.at("moe/dropped_choices")[0] / choices,
              1e-9);
}

TEST(FakeBalancedGate, DependsOnThePositionInTheSample) {
  Training one = routed();
  one.model.mixture.router.in_turn = true;
  expect_equal_on(one, {"fsdp2 cp2(allgather)"});
}

// The ranks of tp hold copies of a token, and their routers differ a lot here.
TEST(Router, UsesTheFirstRanksSelectionForCopies) {
  const Training run = four_heads("qwen3_moe");
  ModelConfig config = run.model;
  config.mixture.router.experts = 8, config.mixture.router.rule.top_k = 2, config.mixture.width = 5;
  at::Tensor experts[2], weights[2];
  ThreadWorld::run(2, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(std::vector<Axis>{{"pp", 1}, {"tp", 2}}, rendezvous, "");
    at::manual_seed(3);
    Units units = make_units(config, at::kFloat);
    const auto tensor = make_parallelizer("tensor", "{}");
    tensor->apply(units, mesh);
    const int rank = mesh.rank("tp");
    for (const auto& unit : units)
      unit->module()->visit("", [&](const std::string&, Module& module) {
        auto* router = dynamic_cast<Router*>(&module);
        if (router == nullptr || experts[rank].defined()) return;
        const at::NoGradGuard no_gradients;
        router->weight.copy_(at::linspace(-1, 1, router->weight.numel()).view(router->weight.sizes()).cos());
        if (rank == 1) router->weight.neg_();
        Batch batch;
        batch.tokens = at::zeros({1, 6}, at::kLong);
        const model::Routing routing =
            router->route(at::linspace(-1, 1, 6 * config.hidden_size).view({6, -1}), batch);
        experts[rank] = routing.experts, weights[rank] = routing.weights;
      });
  });
  EXPECT_TRUE(at::equal(experts[0], experts[1]));
  EXPECT_FALSE(at::allclose(weights[0], weights[1]));  // each rank's own weights, for the shared experts
}

}  // namespace
}  // namespace heddle::tests
