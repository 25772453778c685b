// Values and gradients of layers on a GPU against float64 on the CPU. scripts/gpu_test runs them, not ctest.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "gpu/gpu_device.h"
#include "heddle/nn/activation.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"
#include "heddle/nn/rotary.h"
#include "heddle/nn/token_loss.h"

namespace heddle::tests {
namespace {

using Tensors = std::vector<at::Tensor>;
using Layer = std::function<Tensors(const Tensors&)>;

// Returns the layer's outputs, then the gradients of its inputs.
Tensors computed(const Layer& layer, const Tensors& given, at::TensorOptions options) {
  Tensors inputs, out;
  for (const at::Tensor& x : given) inputs.push_back(x.to(options).detach().requires_grad_());
  for (const at::Tensor& y : layer(inputs)) {
    at::manual_seed(31);
    const at::Tensor dy = at::randn(y.sizes(), at::kDouble).to(y.options());
    y.backward(dy, /*retain_graph=*/true);
    out.push_back(y.detach());
  }
  for (const at::Tensor& x : inputs) out.push_back(x.grad());
  return out;
}

void expect_as_on_the_cpu(const std::string& what, const Tensors& given, const Layer& layer,
                          std::vector<at::ScalarType> dtypes = {at::kFloat, at::kBFloat16}) {
  device();
  for (const at::ScalarType dtype : dtypes) {
    Tensors rounded;
    for (const at::Tensor& x : given) rounded.push_back(x.to(dtype).to(at::kDouble));
    const Tensors want = computed(layer, rounded, at::TensorOptions(at::kDouble)),
                  got = computed(layer, rounded, at::TensorOptions(dtype).device(at::kCUDA));
    const double tolerance = dtype == at::kFloat ? 2e-5 : 4e-2;
    for (size_t i = 0; i < want.size(); ++i) {
      const double scale = std::max(1.0, want[i].abs().max().item<double>());
      EXPECT_LT((got[i].cpu().to(at::kDouble) - want[i]).abs().max().item<double>(), tolerance * scale)
          << what << ", " << c10::toString(dtype) << ", tensor " << i;
    }
  }
}

at::Tensor draw(at::IntArrayRef shape) {
  return at::randn(shape, at::kDouble);
}

TEST(LayersOnGpu, RmsNorm) {
  for (const int64_t width : {9, 64, 1000, 2048})
    for (const bool plus_one : {false, true})
      expect_as_on_the_cpu("width " + std::to_string(width), {draw({70, width}), draw({width})},
                           [&](const Tensors& x) -> Tensors {
                             return {plus_one ? model::rms_norm_plus_one(x[0], x[1], 1e-5)
                                              : model::rms_norm(x[0], x[1], 1e-5)};
                           });
}

TEST(LayersOnGpu, Swiglu) {
  for (const int64_t width : {7, 64, 1024})
    expect_as_on_the_cpu("width " + std::to_string(width), {draw({33, 2 * width})},
                         [&](const Tensors& x) -> Tensors {
                           return {model::swiglu(x[0].narrow(1, 0, width), x[0].narrow(1, width, width))};
                         });
}

TEST(LayersOnGpu, Rotary) {
  for (const model::HeadPart part : {model::HeadPart{}, {48, 8, false}, {48, 8, true}}) {
    const at::Tensor turns = draw({21, 16});
    expect_as_on_the_cpu(
        "head " + std::to_string(part.head_dim), {draw({21, 4 * 48}), draw({21, 2 * 48})},
        [&](const Tensors& x) -> Tensors {
          const auto angle = [&](const at::Tensor& of) { return of.to(x[0].device(), at::kFloat); };
          const int64_t dim = part.head_dim > 0 ? 48 : 32;
          const auto [q, k] = model::rotate(x[0].narrow(1, 0, 4 * dim), x[1].narrow(1, 0, 2 * dim),
                                            {angle(turns.cos()), angle(turns.sin()), part});
          return {q, k};
        });
  }
}

TEST(LayersOnGpu, TokenLoss) {
  for (const int64_t vocabulary : {11, 1000, 4096})
    for (const double cap : {0.0, 5.0}) {
      const at::Tensor labels = at::randint(vocabulary, {40}, at::kLong);
      labels[3] = -100;
      const std::string what = "vocabulary " + std::to_string(vocabulary) + ", cap " + std::to_string(cap);
      expect_as_on_the_cpu(what, {draw({40, vocabulary})}, [&](const Tensors& x) -> Tensors {
        return {model::token_loss(x[0], labels.to(x[0].device()), cap)};
      });
      expect_as_on_the_cpu(what + ", from hidden states", {draw({40, 24}), draw({vocabulary, 24})},
                           [&](const Tensors& x) -> Tensors {
                             return {model::linear_token_loss(x[0], x[1], labels.to(x[0].device()), cap)};
                           });
    }
}

struct Form {
  std::string name;
  int64_t head_dim;
  AttentionOptions options;
  bool documents = false, sinks = false;
};

TEST(LayersOnGpu, Attention) {
  const std::vector<Form> forms = {{"plain", 64, {}},
                                   {"plain, wide", 128, {}},
                                   {"odd heads", 10, {}},
                                   {"full", 64, {.causal = false}},
                                   {"window", 64, {.window = 20}},
                                   {"sinks", 64, {}, false, true},
                                   {"window and sinks", 64, {.window = 20}, false, true},
                                   {"soft cap", 64, {.soft_cap = 2}},
                                   {"values of another width", 24, {.value_dim = 16}},
                                   {"documents", 64, {}, true},
                                   {"documents and window", 64, {.window = 20}, true},
                                   {"documents, full", 64, {.causal = false}, true},
                                   {"documents and sinks", 64, {.window = 20}, true, true}};
  const int64_t batch = 2, length = 96, queries = 4, keys = 2;
  const at::Tensor documents = at::tensor({0, 1, 40, 96, 120, 192}, at::kInt);
  for (const Form& form : forms) {
    const int64_t values = form.options.value_dim > 0 ? form.options.value_dim : form.head_dim;
    Tensors given{draw({batch * length, queries * form.head_dim}),
                  draw({batch * length, keys * form.head_dim}), draw({batch * length, keys * values})};
    if (form.sinks) given.push_back(draw({queries}));
    expect_as_on_the_cpu(form.name, given, [&](const Tensors& x) -> Tensors {
      const model::Heads heads{batch, length, form.head_dim, form.options, form.sinks ? x[3] : at::Tensor()};
      return {model::attend(x[0], x[1], x[2], heads,
                            form.documents ? documents.to(x[0].device()) : at::Tensor())};
    });
  }
}

}  // namespace
}  // namespace heddle::tests
