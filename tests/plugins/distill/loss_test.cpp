// The block-wise loss equals plain operators with autograd: soft caps, logits, tokens without labels.
#include "plugins/distill/loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "heddle/model/batch.h"

namespace heddle::tests {
namespace {

using distill::Distilled;
using distill::HeadInput;
using distill::LossOptions;

struct Case {
  const char* name;
  double ratio, temperature;
  int64_t chunk;
  double student_cap, teacher_cap;
  bool from_logits;
};

class LossOfATeacher : public ::testing::TestWithParam<Case> {};

at::Tensor capped(const at::Tensor& logits, double cap) {
  return cap == 0 ? logits : (logits / cap).tanh() * cap;
}

TEST_P(LossOfATeacher, EqualsPlainOperators) {
  const Case& one = GetParam();
  at::manual_seed(3);
  const at::TensorOptions wide = at::kDouble;
  const at::Tensor hidden = at::randn({11, 6}, wide).set_requires_grad(true),
                   weight = at::randn({13, 6}, wide).set_requires_grad(true),
                   theirs = at::randn({11, 9}, wide), head = at::randn({13, 9}, wide);
  const at::Tensor labels = at::randint(0, 13, {11}, at::kLong);
  labels[2] = labels[7] = Batch::kIgnore;
  const at::Tensor kept = labels.ne(Batch::kIgnore);
  const at::Tensor s = capped(hidden.matmul(weight.t()), one.student_cap).index({kept});
  const at::Tensor t = capped(theirs.matmul(head.t()), one.teacher_cap).index({kept}) / one.temperature;
  const at::Tensor log_t = t.log_softmax(1), log_q = (s / one.temperature).log_softmax(1);
  const at::Tensor kd = (log_t.exp() * (log_t - log_q)).sum() * one.temperature * one.temperature;
  const at::Tensor ce = at::cross_entropy_loss(s, labels.index({kept}), {}, at::Reduction::Sum);
  ((1 - one.ratio) * ce + one.ratio * kd).mul(0.25).backward();
  const at::Tensor d_hidden = hidden.grad().clone(), d_weight = weight.grad().clone();
  hidden.mutable_grad().reset();
  weight.mutable_grad().reset();

  HeadInput student{hidden, weight, {}, one.student_cap};
  const HeadInput teacher{theirs, head, {}, one.teacher_cap};
  if (one.from_logits) student = {{}, {}, hidden.matmul(weight.t()), one.student_cap};
  const Distilled found =
      distill::distilled_loss(student, teacher, labels, {one.ratio, one.temperature, one.chunk});
  found.loss.mul(0.25).backward();
  EXPECT_TRUE(at::allclose(found.kd[0], kd, 1e-10, 1e-12)) << found.kd << kd;
  if (one.ratio < 1) {
    EXPECT_TRUE(at::allclose(found.ce[0], ce, 1e-10, 1e-12)) << found.ce << ce;
  }
  EXPECT_TRUE(at::allclose(hidden.grad(), d_hidden, 1e-9, 1e-12));
  EXPECT_TRUE(at::allclose(weight.grad(), d_weight, 1e-9, 1e-12));
}

INSTANTIATE_TEST_SUITE_P(
    Forms, LossOfATeacher,
    ::testing::Values(Case{"plain", 0.5, 1, 0, 0, 0, false}, Case{"blocks", 0.3, 2, 4, 0, 0, false},
                      Case{"logits", 0.3, 2, 4, 0, 0, true}, Case{"caps", 0.6, 0.7, 3, 1.5, 2.5, false},
                      Case{"all", 1, 1.5, 5, 0, 0, false}, Case{"none", 0, 3, 5, 0, 0, false}),
    [](const auto& info) { return info.param.name; });

// Tokens that the teacher excludes add nothing, and a batch without labels gives zeros.
TEST(LossOfATeacher, HandlesExcludedTokensAndMissingLabels) {
  at::manual_seed(3);
  const at::Tensor hidden = at::randn({4, 5}).set_requires_grad(true), weight = at::randn({7, 5});
  const at::Tensor logits = at::randn({4, 7});
  logits.select(1, 3).fill_(-std::numeric_limits<double>::infinity());
  const HeadInput student{hidden, weight, {}, 0}, teacher{{}, {}, logits, 0};
  const Distilled some = distill::distilled_loss(student, teacher, at::zeros({4}, at::kLong), {0.5, 1, 2});
  EXPECT_TRUE(at::isfinite(some.loss).item<bool>());
  const Distilled none =
      distill::distilled_loss(student, teacher, at::full({4}, Batch::kIgnore, at::kLong), {0.5, 1, 2});
  none.loss.backward();
  EXPECT_EQ(none.loss.item<float>(), 0);
  EXPECT_TRUE(hidden.grad().eq(0).all().item<bool>());
}

}  // namespace
}  // namespace heddle::tests
