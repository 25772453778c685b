// Block residuals: block inputs are passed from unit to unit, and unsupported models are refused.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "decoder/forms.h"
#include "heddle/decoder/family.h"
#include "lib/run/generate/generate.h"
#include "tests/thrown.h"

namespace heddle::tests {
namespace {

decoder::Model block_model(int64_t layers, int64_t size) {
  decoder::Model model = base_model();
  model.layers.resize(static_cast<size_t>(layers), model.layers[0]);
  model.block_residuals = {.size = size};
  return model;
}

// All later units receive the input of a block's first layer as the same tensor.
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

// The first layer has no earlier block to mix in, so its mixing parameters stay frozen.
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
            "error[config] model: a model with block residuals has blocks of 0 layers\n"
            "  hint: set BlockResiduals::size to at least 1");
  model = block_model(2, 1);
  model.layers[1].order = decoder::Layer::Order::after;
  EXPECT_EQ(made(model),
            "error[config] model: a model with block residuals has layer 1 without mixer, without MLP or "
            "with an order of norms other than before\n"
            "  hint: give each layer a mixer, an MLP and Layer::Order::before");
  model = block_model(2, 1);
  model.hyper_connections.emplace();
  EXPECT_EQ(made(model),
            "error[config] model: a model with block residuals has several streams, multi-token prediction "
            "heads or per-layer inputs, which are built for one sum\n"
            "  hint: remove Model::hyper_connections, mtp and layer_inputs");
}

}  // namespace
}  // namespace heddle::tests
