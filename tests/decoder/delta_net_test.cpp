// Gated DeltaNet as a module: gates, state, FLOPs, refusals.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "heddle/decoder/family.h"
#include "heddle/model/module_unit.h"
#include "tests/decoder/generated.h"
#include "thrown.h"

namespace heddle::tests {
namespace {

// One Gated DeltaNet layer, then one layer of gated attention.
decoder::Model delta_model() {
  decoder::Attention attention;
  attention.heads = 2, attention.kv_heads = 1, attention.head_dim = 6;
  attention.rotation.dim = 4, attention.output_gate = true;
  decoder::Model model;
  model.vocabulary = 13, model.width = 12, model.init_std = 0.3;
  model.layers.assign(2, {attention, decoder::Mlp{.width = 10}});
  model.layers[0].mixer = decoder::delta_net({2, 4, 5, 3, 4, 1e-6});
  return model;
}

TEST(DeltaNet, KeepsItsStateWhileTokensAreGenerated) {
  at::manual_seed(8);
  const auto spec = decoder::make_spec({.model = delta_model()});
  Units whole = spec->make_units(at::kFloat);
  at::manual_seed(8);
  Units cached = spec->make_units(at::kFloat);
  expect_same_tokens(whole, cached);
}

TEST(DeltaNet, CountsItsOperations) {
  decoder::Model model = delta_model();
  model.layers.pop_back();
  constexpr double keys = 2 * 5, values = 4 * 3;
  constexpr double mixer = 12 * (2 * keys + 3 * values + 2 * 4) + 4 * (2 * keys + values) + 4 * values * 5;
  EXPECT_EQ(decoder::make_spec({.model = model})->flops_per_token(20), 6 * (mixer + 3 * 12 * 10 + 12 * 13));
}

// A parallelizer finds the token-mixing core and does not refuse the module around it.
TEST(DeltaNet, MixesTokensInItsCoreAlone) {
  const Units units = decoder::make_spec({.model = delta_model()})->make_units(at::kMeta);
  std::string said;
  dynamic_cast<ModuleUnit&>(*units[1]).visit([&](const std::string& path, Module& module) {
    said += thrown_by([&] { refuse_mixed_tokens(module, path, "cp", "run.yaml:3", "set cp_size: 1"); });
  });
  EXPECT_THAT(said, ::testing::HasSubstr("'model.layers.0.linear_attn.core' (sequence_core)"));
  EXPECT_THAT(said, ::testing::Not(::testing::HasSubstr("(gated_delta_net)")));
}

TEST(DeltaNet, RefusesHeadsThatDoNotDivide) {
  EXPECT_THAT(thrown_by([] {
                decoder::delta_net({4, 6, 5, 3});
              }),
              ::testing::HasSubstr("a gated delta net has 6 value heads for 4 key heads"));
}

TEST(DeltaNet, BeginsWithGatesOfTransformers) {
  at::manual_seed(9);
  decoder::Model model = delta_model();
  model.layers[0].mixer = decoder::delta_net({64, 64, 2, 2});
  const Units units = decoder::make_spec({.model = model})->make_units(at::TensorOptions(at::kBFloat16));
  for (ParameterSlot& slot : units[1]->parameters()) {
    if (slot.name.ends_with("A_log")) {
      EXPECT_EQ(slot.tensor->scalar_type(), at::kFloat);
      EXPECT_GE(slot.tensor->min().item<float>(), std::log(0.01F));
      EXPECT_LE(slot.tensor->max().item<float>(), std::log(16.0F));
      EXPECT_NEAR(slot.tensor->exp().mean().item<float>(), 8, 2);
    }
    if (slot.name.ends_with("conv1d.weight")) {
      EXPECT_NEAR(slot.tensor->abs().max().item<float>(), 0.5, 0.02);
    }
    if (slot.name.ends_with("dt_bias")) {
      EXPECT_TRUE(slot.tensor->eq(1).all().item<bool>());
    }
  }
}

}  // namespace
}  // namespace heddle::tests
