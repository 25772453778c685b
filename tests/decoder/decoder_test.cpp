// Every decoder form equals plain operators in value and in the gradient of every parameter.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "decoder/forms.h"
#include "decoder/plain_decoder.h"
#include "heddle/decoder/family.h"
#include "heddle/model/slot.h"
#include "lib/run/generate/generate.h"
#include "tests/thrown.h"

namespace heddle::tests {
namespace {

// Returns parameter values for which norms and biases have distinct effects.
Parameters values_of(Units& units) {
  Parameters out;
  for (const auto& unit : units)
    for (ParameterSlot& slot : unit->parameters()) {
      if (out.contains(slot.name)) continue;
      at::NoGradGuard no_gradients;
      if (slot.tensor->dim() == 1) slot.tensor->add_(at::randn_like(*slot.tensor), 0.2);
      out[slot.name] = slot.tensor->detach().clone().set_requires_grad(true);
    }
  return out;
}

class DecoderForms : public ::testing::TestWithParam<Form> {
 protected:
  DecoderForms() : model(base_model()) {
    at::manual_seed(5);
    GetParam().change(model);
    units = decoder::make_spec({.model = model})->make_units(at::kDouble);
    values = values_of(units);
    batch.tokens = at::randint(kTokens, {2, kLength}, at::kLong);
    batch.draws = at::arange(2 * kLength, at::kLong).view({2, kLength}) * 7 + 3;
  }
  decoder::Model model;
  Units units;
  Parameters values;
  Batch batch;
};

// RoPE angles are float32.
constexpr double kTolerance = 2e-6;

void expect_near_to(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  const double scale = std::max(1.0, want.abs().max().item<double>());
  EXPECT_LE((got - want).abs().max().item<double>(), kTolerance * scale) << what;
}

TEST_P(DecoderForms, GiveTheLogitsOfPlainOperators) {
  const at::Tensor want = plain_logits(model, values, batch.tokens, batch.draws);
  expect_near_to(logits_of(units)(batch), want, "logits");
}

TEST_P(DecoderForms, GiveTheLossAndGradientsOfPlainOperators) {
  batch.labels = at::randint(kTokens, {2, kLength}, at::kLong);
  const at::Tensor want =
      at::cross_entropy_loss(plain_logits(model, values, batch.tokens, batch.draws).flatten(0, 1),
                             batch.labels.flatten(), {}, at::Reduction::Sum);
  want.backward();
  const at::Tensor got = logits_of(units)(batch);
  EXPECT_NEAR(got.item<double>(), want.item<double>(), 1e-5 * want.item<double>());
  got.sum().backward();
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      if (!slot.trainable()) continue;
      ASSERT_TRUE(slot.tensor->grad().defined()) << slot.name;
      expect_near_to(slot.tensor->grad(), values.at(slot.name).grad(), slot.name);
    }
}

TEST(LearnedPositions, RefuseOneWithoutAVector) {
  decoder::Model model = base_model();
  model.positions = kLength + 2;
  const Units units = decoder::make_spec({.model = model})->make_units(at::kFloat);
  Batch batch;
  batch.tokens = at::zeros({1, model.positions + 1}, at::kLong);
  EXPECT_EQ(thrown_by([&] { units.front()->forward({batch.tokens}, batch); }),
            "error[input] embedding: position 11 has no embedding: the model has 11 positions\n"
            "  hint: use shorter sequences, or a model with more positions");
}

INSTANTIATE_TEST_SUITE_P(All, DecoderForms, ::testing::ValuesIn(decoder_forms()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace heddle::tests
