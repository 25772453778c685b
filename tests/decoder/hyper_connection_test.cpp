// Hyper-connections equal their definition by plain operators, with every gradient.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "decoder/forms.h"
#include "decoder/plain_streams.h"
#include "heddle/decoder/family.h"
#include "lib/decoder/streams/hyper_connection.h"
#include "tests/decoder/rules.h"
#include "tests/thrown.h"

namespace heddle::tests {
namespace {

using decoder::HyperConnections;
using ::testing::HasSubstr;

struct HyperShape {
  std::string name;
  int64_t tokens, width;
  HyperConnections form;
};

const HyperShape kHyperShapes[] = {
    {"one_token", 1, 3, {4, 20, 1e-6, 1e-6}},
    {"two_streams", 7, 5, {2, 3, 1e-3, 1e-5}},
    {"columns_alone", 5, 6, {3, 1, 1e-6, 1e-6}},
    {"one_stream", 4, 7, {1, 2, 1e-6, 1e-6}},
};

using Leaves = std::vector<at::Tensor>;

// x, y, mix, base, scale; of the last weights of a model where `last`.
Leaves hyper_inputs(const HyperShape& shape, bool last) {
  const int64_t n = shape.form.streams, weights = last ? n : n * (2 + n);
  return {random_leaf({shape.tokens, n * shape.width}), random_leaf({shape.tokens, shape.width}),
          random_leaf({weights, n * shape.width}), random_leaf({weights}), random_leaf({last ? 1 : 3})};
}

PlainStreams plain_of(const Leaves& in, const HyperConnections& form) {
  return {in[2], in[3], in[4], form};
}

at::Tensor plain_collapsed(const Leaves& in, const HyperConnections& form) {
  return plain_of(in, form).collapsed(in[0]);
}

// The streams after a module that adds what goes in to y.
at::Tensor plain_layer(const Leaves& in, const HyperConnections& form) {
  return plain_of(in, form).expanded(in[0], in[1] + plain_collapsed(in, form));
}

at::Tensor our_collapsed(const Leaves& in, const HyperConnections& form) {
  return decoder::hyper_collapsed(in[0], decoder::hyper_weights(in[0], in[2], in[3], in[4], form),
                                  form.streams);
}

at::Tensor our_layer(const Leaves& in, const HyperConnections& form) {
  const at::Tensor weights = decoder::hyper_weights(in[0], in[2], in[3], in[4], form);
  const at::Tensor y = in[1] + decoder::hyper_collapsed(in[0], weights, form.streams);
  return decoder::hyper_expanded(in[0], y, weights, form.streams);
}

void expect_equal(const HyperShape& shape, bool last) {
  const Leaves in = hyper_inputs(shape, last);
  const at::Tensor want = last ? plain_collapsed(in, shape.form) : plain_layer(in, shape.form);
  const at::Tensor got = last ? our_collapsed(in, shape.form) : our_layer(in, shape.form);
  expect_near_double(got.detach(), want.detach(), 1e-13, shape.name);
  const at::Tensor d = at::randn(want.sizes(), at::kDouble);
  const auto gradients = [&](const at::Tensor& out) {
    return torch::autograd::grad({out}, in, {d}, std::nullopt, false, true);
  };
  const auto of_want = gradients(want), of_got = gradients(got);
  for (size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(of_want[i].defined(), of_got[i].defined()) << shape.name << " input " << i;
    if (!of_want[i].defined()) continue;
    expect_near_double(of_got[i], of_want[i], 1e-11, shape.name + " gradient " + std::to_string(i));
  }
}

TEST(HyperConnection, IsTheDefinition) {
  at::manual_seed(3);
  for (const HyperShape& shape : kHyperShapes) expect_equal(shape, false);
}

TEST(HyperConnection, LastWeightsHaveNoMatrix) {
  at::manual_seed(4);
  for (const HyperShape& shape : kHyperShapes) expect_equal(shape, true);
}

TEST(HyperConnection, RefusesWhatIsBuiltForOneStream) {
  const auto refusal = [](const std::function<void(decoder::Model&)>& change) {
    decoder::Model model = base_model();
    model.hyper_connections = {.streams = 2};
    change(model);
    return thrown_by([&] { decoder::make_spec({.model = model})->make_units(at::kMeta); });
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_THAT(refusal([](auto& model) { model.hyper_connections->streams = 0; }),
              HasSubstr("a model with hyper-connections has 0 streams and 20 iterations"));
  EXPECT_THAT(refusal([](auto& model) { model.layer_inputs.width = 4; }),
              HasSubstr("inputs of its layers, which are built for one stream"));
  EXPECT_THAT(refusal([](auto& model) { model.layers[1].order = decoder::Layer::Order::side_by_side; }),
              HasSubstr("beside each other in layer 1"));
}

TEST(HyperConnection, MetaHasTheShapes) {
  const auto meta = at::TensorOptions().device(at::kMeta).dtype(at::kBFloat16);
  const at::Tensor x = at::empty({5, 12}, meta);
  const at::Tensor weights = decoder::hyper_weights(x, at::empty({24, 12}, meta), at::empty({24}, meta),
                                                    at::empty({3}, meta), {.streams = 4});
  EXPECT_EQ(weights.sizes(), at::IntArrayRef({5, 24}));
  EXPECT_EQ(weights.scalar_type(), at::kFloat);
  EXPECT_EQ(decoder::hyper_collapsed(x, weights, 4).sizes(), at::IntArrayRef({5, 3}));
  EXPECT_EQ(decoder::hyper_expanded(x, at::empty({5, 3}, meta), weights, 4).sizes(), x.sizes());
}

}  // namespace
}  // namespace heddle::tests
