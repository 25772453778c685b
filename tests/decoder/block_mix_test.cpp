// The sum over blocks equals its definition by plain operators with every gradient; blocks go from unit to
// unit; what cannot be is refused.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "decoder/forms.h"
#include "decoder/plain_streams.h"
#include "heddle/decoder/family.h"
#include "lib/decoder/blocks/block_mix.h"
#include "lib/run/generate/generate.h"
#include "tests/decoder/rules.h"
#include "tests/thrown.h"

namespace heddle::tests {
namespace {

constexpr double kBlockEps = 1e-4;

// values, then the norm and the projection.
std::vector<at::Tensor> mix_inputs(int64_t values, int64_t tokens, int64_t width) {
  std::vector<at::Tensor> out;
  for (int64_t i = 0; i < values; ++i) out.push_back(random_leaf({tokens, width}));
  out.push_back(random_leaf({width}));
  out.push_back(random_leaf({1, width}));
  return out;
}

std::span<const at::Tensor> values_of(const std::vector<at::Tensor>& in) {
  return std::span(in).first(in.size() - 2);
}

at::Tensor our_mix(const std::vector<at::Tensor>& in) {
  return decoder::block_mix(values_of(in), in[in.size() - 2], in.back(), kBlockEps);
}

at::Tensor plain_mix(const std::vector<at::Tensor>& in) {
  const std::vector<at::Tensor> blocks(in.begin(), in.end() - 3);
  return plain_blocks(blocks, in[in.size() - 3], in[in.size() - 2], in.back(), kBlockEps);
}

TEST(BlockMix, IsTheDefinitionWithEveryGradient) {
  at::manual_seed(6);
  for (const auto& [values, tokens, width] : {std::array<int64_t, 3>{1, 3, 4}, {2, 1, 5}, {5, 7, 6}})
    expect_same(our_mix, plain_mix, mix_inputs(values, tokens, width), 1e-12);
}

TEST(BlockMix, KeepsTheDtypeAndHasShapesOnMeta) {
  at::manual_seed(7);
  std::vector<at::Tensor> in = mix_inputs(3, 5, 8);
  const at::Tensor want = plain_mix(in).detach();
  for (at::Tensor& one : in) one = one.detach().to(at::kBFloat16);
  const at::Tensor got = our_mix(in);
  EXPECT_EQ(got.scalar_type(), at::kBFloat16);
  expect_near_double(got, want, 0.03, "bfloat16");
  for (at::Tensor& one : in) one = one.to(at::kMeta).set_requires_grad(true);
  const at::Tensor meta = our_mix(in);
  meta.backward(at::empty_like(meta));
  for (const at::Tensor& one : in) EXPECT_EQ(one.grad().sizes(), one.sizes());
}

decoder::Model block_model(int64_t layers, int64_t size) {
  decoder::Model model = base_model();
  model.layers.resize(static_cast<size_t>(layers), model.layers[0]);
  model.block_residuals = {.size = size};
  return model;
}

// What comes to the first layer of a block is the same tensor for all units behind it.
TEST(BlockResiduals, GoToAllLaterUnits) {
  const Units units = decoder::make_spec({.model = block_model(3, 2)})->make_units(at::kFloat);
  Batch batch;
  batch.tokens = at::zeros({1, kLength}, at::kLong);
  Tensors flow = units[0]->forward({}, batch);
  ASSERT_EQ(flow.size(), 1u);
  const at::Tensor first = flow[0];
  flow = units[1]->forward(flow, batch);
  ASSERT_EQ(flow.size(), 2u);
  EXPECT_TRUE(flow[1].is_same(first));
  flow = units[2]->forward(flow, batch);
  ASSERT_EQ(flow.size(), 2u);
  EXPECT_TRUE(flow[1].is_same(first));
  const at::Tensor second = flow[0];
  flow = units[3]->forward(flow, batch);
  ASSERT_EQ(flow.size(), 3u);
  EXPECT_TRUE(flow[1].is_same(first));
  EXPECT_TRUE(flow[2].is_same(second));
  EXPECT_EQ(units[4]->forward(flow, batch).size(), 1u);
}

// The first sum has nothing to add.
TEST(BlockResiduals, TrainWhereTheyMix) {
  const Units units = decoder::make_spec({.model = block_model(2, 2)})->make_units(at::kMeta);
  std::vector<std::string> still;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      if (!slot.trainable()) still.push_back(slot.name);
  EXPECT_EQ(still, (std::vector<std::string>{"model.layers.0.attn_res.norm.weight",
                                             "model.layers.0.attn_res.proj.weight"}));
}

TEST(BlockResiduals, RefuseWhatIsBuiltForOneSum) {
  const auto made = [](const decoder::Model& model) {
    return thrown_by([&] { decoder::make_spec({.model = model})->make_units(at::kMeta); });
  };
  decoder::Model model = block_model(2, 0);
  EXPECT_EQ(made(model),
            "error[config] model: a model with residuals of blocks has blocks of 0 layers\n"
            "  hint: give BlockResiduals::size, at least 1");
  model = block_model(2, 1);
  model.layers[1].order = decoder::Layer::Order::after;
  EXPECT_EQ(
      made(model),
      "error[config] model: a model with residuals of blocks has in layer 1 no mixer, no MLP or another "
      "order of norms than before\n"
      "  hint: give each layer both parts and Layer::Order::before");
  model = block_model(2, 1);
  model.hyper_connections.emplace();
  EXPECT_EQ(
      made(model),
      "error[config] model: a model with residuals of blocks has several streams, multi-token prediction "
      "heads or inputs of its layers, which are built for one sum\n"
      "  hint: leave out Model::hyper_connections, mtp and layer_inputs");
}

}  // namespace
}  // namespace heddle::tests
