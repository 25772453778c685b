// Mamba-2 and multi-token prediction heads: state, documents, FLOPs, refusals.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "heddle/decoder/family.h"
#include "heddle/model/module_unit.h"
#include "lib/decoder/mtp/multi_token_prediction.h"
#include "tests/decoder/generated.h"
#include "thrown.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

decoder::Layer mamba_layer() {
  decoder::Mamba form;
  form.heads = 4, form.groups = 2, form.width = 3, form.state = 5, form.taps = 4;
  return {decoder::mamba(form), decoder::Absent()};
}

// Mamba-2, attention without positional encoding, an MLP without a gate, and `mtp` prediction heads.
decoder::Model mamba_model(int64_t mtp, bool repeated = false) {
  decoder::Attention attention;
  attention.heads = 2, attention.kv_heads = 1, attention.head_dim = 6;
  decoder::Model model;
  model.vocabulary = 13, model.width = 12, model.init_std = 0.3;
  model.layers = {mamba_layer(), {attention, decoder::Absent()}};
  decoder::Mlp mlp{.width = 10, .gated = false, .activation = decoder::Activation::relu2};
  model.layers.push_back({decoder::Absent(), mlp});
  model.mtp.tokens = mtp, model.mtp.repeated = repeated;
  if (mtp > 0) model.mtp.layers = {mamba_layer(), {attention, mlp}};
  return model;
}

Units units_of(const decoder::Model& model, at::ScalarType dtype = at::kDouble) {
  at::manual_seed(8);
  return decoder::make_spec({.model = model})->make_units(at::TensorOptions(dtype));
}

Batch batch_of(const at::Tensor& rows) {
  Batch out;
  out.tokens = rows.narrow(1, 0, rows.size(1) - 1).contiguous();
  out.labels = rows.narrow(1, 1, rows.size(1) - 1).contiguous();
  return out;
}

at::Tensor loss_of(const Units& units, const Batch& batch) {
  Tensors x;
  for (const auto& unit : units) x = unit->forward(std::move(x), batch);
  return x[0];
}

TEST(MambaModule, KeepsItsStateWhileTokensAreGenerated) {
  Units whole = units_of(mamba_model(0), at::kFloat), cached = units_of(mamba_model(2), at::kFloat);
  expect_same_tokens(whole, cached);  // generation ignores multi-token prediction heads
}

TEST(MambaModule, CountsItsOperations) {
  decoder::Model model = mamba_model(0);
  model.layers.resize(1);
  constexpr double inner = 4 * 3, shared = 2 * 2 * 5;
  constexpr double mixer = 12 * (3 * inner + shared + 4) + 4 * (inner + shared) + 3 * inner * 5;
  const auto operations = [](const decoder::Model& of) {
    return decoder::make_spec({.model = of})->flops_per_token(20);
  };
  EXPECT_EQ(operations(model), 6 * (mixer + 12 * 13));
  model.mtp.tokens = 3, model.mtp.layers = {mamba_layer()};
  EXPECT_EQ(operations(model), 6 * (mixer + 12 * 13 + 3 * (mixer + 2 * 12 * 12 + 12 * 13)));
}

TEST(MambaModule, RefusesHeadsThatDoNotDivide) {
  EXPECT_THAT(thrown_by([] { decoder::mamba({.heads = 6, .groups = 4}); }),
              HasSubstr("Mamba-2 has 6 heads for 4 groups"));
}

TEST(MambaModule, BeginsWithTheValuesOfTransformers) {
  decoder::Model model = mamba_model(0);
  model.layers[0].mixer = decoder::mamba({.heads = 512, .groups = 2, .output_std = 0.01});
  const Units units = units_of(model, at::kBFloat16);
  for (ParameterSlot& slot : units[1]->parameters()) {
    if (slot.name.ends_with("A_log")) {
      EXPECT_EQ(slot.tensor->scalar_type(), at::kFloat);
      EXPECT_TRUE(at::allclose(*slot.tensor, at::arange(1, 513, at::kFloat).log()));
    }
    if (slot.name.ends_with("dt_bias")) {  // time steps log-uniform in [0.001, 0.1]
      const at::Tensor step = at::softplus(*slot.tensor).log10();
      EXPECT_GE(step.min().item<float>(), -3.01F);
      EXPECT_LE(step.max().item<float>(), -0.99F);
      EXPECT_NEAR(step.mean().item<float>(), -2, 0.1);
    }
    if (slot.name.ends_with("x_conv1d.bias")) {
      EXPECT_NEAR(slot.tensor->abs().max().item<float>(), 0.5, 0.02);
    }
    if (slot.name.ends_with("out_proj.weight")) {
      EXPECT_NEAR(slot.tensor->to(at::kFloat).std().item<float>(), 0.01, 0.001);
    }
  }
}

// A row of packed documents has the loss and the gradients of one row per document.
TEST(MambaModule, DocumentsOfARowAreRowsOfTheirOwn) {
  for (const bool repeated : {false, true}) {
    const Units packed = units_of(mamba_model(2, repeated)), apart = units_of(mamba_model(2, repeated));
    const at::Tensor rows = at::randint(13, {1, 81}, at::kLong);
    Batch together = batch_of(rows);
    const std::vector<int> begins = {0, 1, 9, 70, 80};
    together.documents = at::tensor(begins, at::kInt);
    const at::Tensor got = loss_of(packed, together);
    got.sum().backward();
    at::Tensor want = at::zeros({1}, at::kDouble);
    for (size_t i = 0; i + 1 < begins.size(); ++i)
      want = want + loss_of(apart, batch_of(rows.narrow(1, begins[i], begins[i + 1] - begins[i] + 1)));
    want.sum().backward();
    EXPECT_NEAR(got.item<double>(), want.item<double>(), 1e-10 * want.item<double>());
    for (size_t i = 0; i < packed.size(); ++i) {
      std::vector<ParameterSlot> slots = packed[i]->parameters(), others = apart[i]->parameters();
      for (size_t at = 0; at < slots.size(); ++at) {
        const at::Tensor mine = slots[at].tensor->grad(), theirs = others[at].tensor->grad();
        ASSERT_TRUE(mine.defined()) << slots[at].name;
        EXPECT_LE((mine - theirs).abs().max().item<double>(), 1e-10) << slots[at].name;
      }
    }
  }
}

TEST(MultiTokenPrediction, AreOfTrainingAlone) {
  const Units with = units_of(mamba_model(2)), without = units_of(mamba_model(0));
  for (size_t i = 0; i + 1 < with.size(); ++i)
    for (size_t at = 0; at < with[i]->parameters().size(); ++at)
      with[i]->parameters()[at].tensor->detach().copy_(*without[i]->parameters()[at].tensor);
  for (ParameterSlot& own : without.back()->parameters())
    for (ParameterSlot& other : with.back()->parameters())
      if (own.name == other.name) other.tensor->detach().copy_(*own.tensor);
  const Batch batch = batch_of(at::randint(13, {2, 9}, at::kLong));
  const double plain = loss_of(without, batch).item<double>();
  EXPECT_GT(loss_of(with, batch).item<double>(), plain * 1.05);
  const at::NoGradGuard guard;
  EXPECT_EQ(loss_of(with, batch).item<double>(), plain);
}

TEST(MultiTokenPrediction, AreThoseOfTheSameDocument) {
  Batch batch;
  batch.labels = at::tensor({1, 2, 3, 4, 5, -100, 7, 8}, at::kLong).view({2, 4});
  const auto equal = [](const at::Tensor& got, std::vector<int64_t> want) {
    return at::equal(got.flatten(), at::tensor(want, at::kLong));
  };
  EXPECT_TRUE(equal(decoder::later_labels(batch, 1), {2, 3, 4, -100, -100, 7, 8, -100}));
  EXPECT_TRUE(equal(decoder::later_labels(batch, 4), std::vector<int64_t>(8, -100)));
  batch.documents = at::tensor({0, 2, 4, 7, 8}, at::kInt);
  EXPECT_TRUE(equal(decoder::later_labels(batch, 1), {2, -100, 4, -100, -100, 7, -100, -100}));
  EXPECT_TRUE(equal(decoder::later_labels(batch, 2), {-100, -100, -100, -100, 7, -100, -100, -100}));
  EXPECT_TRUE(equal(decoder::later_tokens(batch.labels, 3, 0), {4, 0, 0, 0, 8, 0, 0, 0}));
}

TEST(MultiTokenPrediction, RefuseRanksWithPartsOfTheTokensByName) {
  const Units units = units_of(mamba_model(1));
  std::vector<std::string> said;
  for (const auto& unit : units)
    dynamic_cast<ModuleUnit&>(*unit).visit([&](const std::string& path, Module& module) {
      for (const char* axis : {"cp", "tp"})
        said.push_back(
            thrown_by([&] { refuse_mixed_tokens(module, path, axis, "run.yaml:3", "set it to 1"); }));
    });
  EXPECT_THAT(said, ::testing::Contains(HasSubstr("'mtp' (multi_token_prediction)")).Times(2));
  EXPECT_THAT(said, ::testing::Contains(HasSubstr("'model.layers.0.mamba.core' (sequence_core)")).Times(2));
  EXPECT_THAT(said, ::testing::Contains(HasSubstr("'mtp.layers.0.mamba.core' (sequence_core)")).Times(2));
}

}  // namespace
}  // namespace heddle::tests
