// Token loss equals ATen's cross entropy over the non-ignored labels, block by block.
#include "heddle/nn/token_loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/model/batch.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/linear.h"
#include "heddle/transport/threads.h"
#include "nn/against_aten.h"
#include "thrown.h"

namespace heddle {
namespace {

using tests::expect_same;
using Inputs = std::vector<at::Tensor>;

at::Tensor plain_loss(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor wide = logits.to(logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  return at::cross_entropy_loss(wide, labels.view({-1}), {}, at::Reduction::Sum, Batch::kIgnore).view({1});
}

at::Tensor some_labels(int64_t tokens, int64_t vocabulary) {
  at::Tensor labels = at::randint(vocabulary, {tokens}, at::kLong);
  labels.slice(0, 0, tokens, 3).fill_(Batch::kIgnore);
  return labels;
}

// A block holds 4 million logits, so 100 rows of 60 000 make two blocks.
TEST(TokenLoss, IsTheSameOverSeveralBlocks) {
  at::manual_seed(3);
  const at::Tensor labels = some_labels(100, 60000);
  const Inputs inputs{at::randn({100, 3}, at::kDouble), at::randn({60000, 3}, at::kDouble)};
  expect_same([&](const Inputs& in) { return model::linear_token_loss(in[0], in[1], labels); },
              [&](const Inputs& in) { return plain_loss(at::linear(in[0], in[1]), labels); }, inputs, 1e-12);
  expect_same([&](const Inputs& in) { return model::token_loss(at::linear(in[0], in[1]), labels); },
              [&](const Inputs& in) { return plain_loss(at::linear(in[0], in[1]), labels); }, inputs, 1e-12);
}

TEST(TokenLoss, NamesALabelOutsideTheVocabulary) {
  const at::Tensor labels = at::tensor({1, 5}, at::kLong);
  for (const bool from_logits : {false, true}) {
    EXPECT_EQ(tests::thrown_by([&] {
                from_logits ? model::token_loss(at::randn({2, 5}), labels)
                            : model::linear_token_loss(at::randn({2, 3}), at::randn({5, 3}), labels);
              }),
              "error[input] loss: label 5 is outside the vocabulary of 5\n"
              "  hint: use a token file and a model of the same tokenizer");
  }
}

TEST(TokenLoss, IsZeroWithoutLabels) {
  at::Tensor hidden = at::randn({4, 3}).set_requires_grad(true),
             weight = at::randn({5, 3}).set_requires_grad(true);
  const at::Tensor loss = model::linear_token_loss(hidden, weight, at::full({4}, Batch::kIgnore, at::kLong));
  loss.sum().backward();
  EXPECT_EQ(loss.item<float>(), 0.0F);
  EXPECT_EQ(hidden.grad().abs().sum().item<float>(), 0.0F);
  EXPECT_EQ(weight.grad().abs().sum().item<float>(), 0.0F);
}

at::Tensor capped(const at::Tensor& logits, double cap) {
  const at::Tensor wide = logits.to(logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  return (wide / cap).tanh() * cap;
}

TEST(TokenLoss, CapsLogitsSoftly) {
  at::manual_seed(4);
  const at::Tensor labels = some_labels(10, 31);
  const auto random = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble) * 2; };
  const at::Tensor hidden = random({10, 7}), weight = random({31, 7});
  const at::Tensor whole = model::linear_token_loss(hidden, weight, labels, 1.5);
  ThreadWorld::run(2, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(std::vector<Axis>{{"tp", 2}}, rendezvous, "test: soft cap");
    const int64_t first = mesh.rank("tp") == 0 ? 0 : 16, rows = mesh.rank("tp") == 0 ? 16 : 15;
    const at::Tensor part = model::linear_token_loss(hidden, weight.narrow(0, first, rows), labels,
                                                     {first, 31, &mesh.group("tp")}, 1.5);
    EXPECT_NEAR(part.item<double>(), whole.item<double>(), 1e-10);
  });
  Linear head(7, 31, Linear::Bias::none, {}, at::TensorOptions().dtype(at::kDouble));
  Batch batch;
  batch.labels = labels;
  TokenLoss loss(1.5);
  const at::Tensor logits = loss.logits(hidden, head, batch);
  EXPECT_TRUE(at::allclose(logits, capped(head.call(hidden, batch), 1.5)));
  EXPECT_NEAR(loss.of(hidden, head, batch).item<double>(), plain_loss(logits, labels).item<double>(), 1e-9);
  EXPECT_EQ(tests::thrown_by([] { TokenLoss(-1); }),
            "error[input] TokenLoss: a soft cap of -1.000000\n  hint: give a number above 0, or 0 for none");
}

// A head that contains another head, such as a teacher's.
class HeadWithin : public Module {
 public:
  explicit HeadWithin(Module* inner = nullptr) {
    add_child("linear", linear);
    add_child("loss", loss);
    if (inner != nullptr) add_child("inner", *inner);
  }
  std::string_view kind() const override { return "head_within"; }
  Linear linear{3, 5, Linear::Bias::none, {}, at::TensorOptions().device(at::kMeta)};
  TokenLoss loss;

 protected:
  at::Tensor forward(at::Tensor x, const Batch&) override { return x; }
};

TEST(LossHead, IsTheOuterOneOfTheLastUnitThatHasOne) {
  HeadWithin inner, outer(&inner);
  EXPECT_EQ(model::loss_head_of(outer).linear, &outer.linear);
  EXPECT_EQ(model::loss_head_of(outer).loss, &outer.loss);
  EXPECT_EQ(model::loss_head_of(outer).norm, nullptr);
  EXPECT_EQ(model::loss_head_of(outer.linear).module, nullptr);
  Units units;
  EXPECT_EQ(model::loss_head_of(units).module, nullptr);
  auto second = std::make_unique<HeadWithin>(&inner);
  const Linear* const expected = &second->linear;
  units.push_back(std::make_unique<ModuleUnit>("first", "", std::make_unique<HeadWithin>()));
  units.push_back(std::make_unique<ModuleUnit>("second", "", std::move(second)));
  EXPECT_EQ(model::loss_head_of(units).linear, expected);
}

}  // namespace
}  // namespace heddle
