// Hyper-connections refuse modules that support only one residual stream.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "decoder/forms.h"
#include "heddle/decoder/family.h"
#include "tests/thrown.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

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
              HasSubstr("per-layer inputs, which are built for one stream"));
  EXPECT_THAT(refusal([](auto& model) { model.layers[1].order = decoder::Layer::Order::side_by_side; }),
              HasSubstr("parallel MLP and experts, in layer 1"));
}

}  // namespace
}  // namespace heddle::tests
