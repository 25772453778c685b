// Layers with a LinearProducts equal plain layers, and save the input for backward only if it is needed.
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "heddle/model/autocast.h"
#include "heddle/model/batch.h"
#include "heddle/nn/linear.h"

namespace heddle::tests {
namespace {

struct ProductCalls {
  bool keeps_rows = false, had_rows = false;
  int ends = 0;
  at::ScalarType dtype = at::kDouble;
};

class PlainProducts final : public model::LinearProducts {
 public:
  explicit PlainProducts(ProductCalls& seen) : seen_(seen) {}
  at::Tensor forward(size_t, const at::Tensor& rows, const at::Tensor& weight,
                     const at::Tensor& bias) override {
    seen_.dtype = rows.scalar_type();
    EXPECT_EQ(weight.scalar_type(), rows.scalar_type());
    return model::matrix_product(rows, weight.t(), bias);
  }
  void end_forward() override { ++seen_.ends; }
  model::LinearGradients backward(size_t, const at::Tensor& dy, const at::Tensor& rows,
                                  const at::Tensor& weight, model::LinearWanted wanted) override {
    seen_.had_rows = rows.defined();
    model::LinearGradients out;
    if (wanted != model::LinearWanted::rows) out.weight = model::matrix_product(dy.t(), rows);
    if (wanted != model::LinearWanted::weight) out.rows = model::matrix_product(dy, weight);
    return out;
  }
  bool keeps_rows() const override { return seen_.keeps_rows; }

 private:
  ProductCalls& seen_;
};

// Two layers with the same input, in float64 or float32.
struct Pair {
  explicit Pair(at::ScalarType dtype)
      : a(6, 5, Linear::Bias::zeros, {}, at::TensorOptions().dtype(dtype)),
        b(6, 4, Linear::Bias::none, {}, at::TensorOptions().dtype(dtype)),
        x(at::randn({2, 3, 6}, dtype).set_requires_grad(true)) {
    for (at::Tensor* one : {&a.weight, &a.bias, &b.weight})
      one->detach().copy_(at::randn(one->sizes(), dtype));
  }
  std::vector<at::Tensor> leaves() { return {x, a.weight, a.bias, b.weight}; }
  // Returns the gradients of the squares and cubes of the outputs. An undefined gradient means none.
  std::vector<at::Tensor> gradients(const model::FewTensors& out) {
    (out[0].square().sum() + out[1].pow(3).sum()).backward();
    std::vector<at::Tensor> all;
    for (at::Tensor& leaf : leaves()) {
      all.push_back(leaf.grad().defined() ? leaf.grad().clone() : at::Tensor());
      leaf.mutable_grad().reset();
    }
    return all;
  }
  Linear a, b;
  at::Tensor x;
  Linear* layers[2] = {&a, &b};
};

TEST(LinearProducts, GiveTheNumbersOfPlainLayers) {
  Pair pair(at::kDouble);
  ProductCalls seen;
  Batch batch;
  const model::FewTensors plain = model::products(pair.layers, pair.x, batch);
  const model::FewTensors own =
      model::products_by(std::make_unique<PlainProducts>(seen), pair.layers, pair.x);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(own[i], plain[i])) << i;
  const std::vector<at::Tensor> want = pair.gradients(plain), got = pair.gradients(own);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::allclose(got[i], want[i])) << i;
  EXPECT_EQ(seen.ends, 1);
  EXPECT_TRUE(seen.had_rows);
}

TEST(LinearProducts, KeepTheInputWhereAWeightTrainsOrTheyAsk) {
  Pair pair(at::kDouble);
  pair.a.weight.set_requires_grad(false);
  pair.b.weight.set_requires_grad(false);
  for (const bool asks : {false, true}) {
    ProductCalls seen;
    seen.keeps_rows = asks;
    const std::vector<at::Tensor> got =
        pair.gradients(model::products_by(std::make_unique<PlainProducts>(seen), pair.layers, pair.x));
    EXPECT_EQ(seen.had_rows, asks);
    EXPECT_TRUE(got[0].defined() && got[2].defined());
    EXPECT_FALSE(got[1].defined() || got[3].defined());
  }
}

TEST(LinearProducts, ComputeInTheDtypeOfAutocast) {
  Pair pair(at::kFloat);
  ProductCalls seen;
  model::Autocast autocast(at::kBFloat16, model::Autocast::Weights::kept);
  model::FewTensors out;
  {
    const model::Autocast::Scope scope(&autocast);
    out = model::products_by(std::make_unique<PlainProducts>(seen), pair.layers, pair.x);
  }
  EXPECT_EQ(seen.dtype, at::kBFloat16);
  EXPECT_EQ(out[0].scalar_type(), at::kBFloat16);
  for (const at::Tensor& gradient : pair.gradients(out)) EXPECT_EQ(gradient.scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace heddle::tests
