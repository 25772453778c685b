// Savings of the hand-written layers: forward and backward of each against its plain ATen composition, in
// turn; and what large products gain where the packed product computes them.
//   bench_layers [rounds]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "heddle/nn/activation.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"
#include "heddle/nn/rotary.h"
#include "heddle/nn/token_loss.h"

namespace {

using namespace heddle;
using Inputs = std::vector<at::Tensor>;
using Layer = std::function<at::Tensor(const Inputs&)>;

struct Pair {
  std::string name;
  Layer ours, aten;
  Inputs inputs;
};

double microseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

double once(const Layer& layer, const Inputs& inputs) {
  const double time = microseconds([&] {
    const at::Tensor y = layer(inputs);
    y.backward(at::ones_like(y));
  });
  for (const at::Tensor& input : inputs) input.mutable_grad().reset();
  return time;
}

void report(const Pair& pair, int rounds) {
  double ours = 1e12, aten = 1e12;
  for (int i = 0; i < rounds; ++i) {
    ours = std::min(ours, once(pair.ours, pair.inputs));
    aten = std::min(aten, once(pair.aten, pair.inputs));
  }
  std::printf("| %s | %.0f | %.0f | %.2f |\n", pair.name.c_str(), ours, aten, aten / ours);
}

at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape).set_requires_grad(true);
}

at::Tensor plain_norm(const at::Tensor& x, const at::Tensor& weight) {
  return weight * (x * (x.pow(2).mean(-1, true) + 1e-6).rsqrt());
}

at::Tensor plain_turn(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = cos.size(1) / 2;
  const at::Tensor heads = x.view({x.size(0), -1, 2 * half});
  const at::Tensor turned = at::cat({-heads.narrow(2, half, half), heads.narrow(2, 0, half)}, 2);
  return (heads * cos.unsqueeze(1) + turned * sin.unsqueeze(1)).view(x.sizes());
}

std::vector<Pair> pairs(int64_t tokens, int64_t width) {
  const std::string size = " " + std::to_string(tokens) + "x" + std::to_string(width);
  const at::Tensor angle = at::randn({tokens, 16}), cos = angle.cos(), sin = angle.sin();
  const at::Tensor cos2 = at::cat({cos, cos}, 1), sin2 = at::cat({sin, sin}, 1);
  const at::Tensor labels = at::randint(256, {tokens}, at::kLong);
  return {{"RMSNorm" + size,
           [](const Inputs& in) { return model::rms_norm(in[0], in[1], 1e-6); },
           [](const Inputs& in) { return plain_norm(in[0], in[1]); },
           {leaf({tokens, width}), leaf({width})}},
          {"rotary" + size,
           [=](const Inputs& in) {
             const auto [q, k] = model::rotate(in[0], in[1], {cos, sin});
             return q + k;
           },
           [=](const Inputs& in) { return plain_turn(in[0], cos2, sin2) + plain_turn(in[1], cos2, sin2); },
           {leaf({tokens, width}), leaf({tokens, width})}},
          {"SwiGLU" + size,
           [](const Inputs& in) { return model::swiglu(in[0], in[1]); },
           [](const Inputs& in) { return at::silu(in[0]) * in[1]; },
           {leaf({tokens, width}), leaf({tokens, width})}},
          {"linear and residual" + size,
           [](const Inputs& in) { return model::linear_onto(in[2], in[0], in[1], {}); },
           [](const Inputs& in) { return in[2] + at::linear(in[0], in[1]); },
           {leaf({tokens, width}), leaf({width, width}), leaf({tokens, width})}},
          {"head and loss" + size,
           [=](const Inputs& in) { return model::linear_token_loss(in[0], in[1], labels); },
           [=](const Inputs& in) {
             return at::cross_entropy_loss(at::linear(in[0], in[1]), labels, {}, at::Reduction::Sum);
           },
           {leaf({tokens, width}), leaf({256, width})}}};
}

// The three products of a linear layer: y = x W^T, dX = dY W, dW = dY^T X.
void report_products(int64_t tokens, int64_t in, int64_t out, int rounds) {
  const at::Tensor x = at::randn({tokens, in}), weight = at::randn({out, in}), dy = at::randn({tokens, out});
  const std::array<std::pair<at::Tensor, at::Tensor>, 3> products{
      {{x, weight.t()}, {dy, weight}, {dy.t(), x}}};
  std::printf("| %lld x %lld x %lld |", static_cast<long long>(tokens), static_cast<long long>(in),
              static_cast<long long>(out));
  for (const auto& [a, b] : products) {
    double ours = 1e12, aten = 1e12;
    for (int i = 0; i < rounds; ++i) {
      ours = std::min(ours, microseconds([&] { model::matrix_product(a, b); }));
      aten = std::min(aten, microseconds([&] { at::mm(a, b); }));
    }
    std::printf(" %.0f / %.0f = %.2f |", aten, ours, aten / ours);
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 400;
  at::set_num_threads(1);
  std::printf("| layer, tokens x width | ours, us | ATen, us | times |\n|---|--:|--:|--:|\n");
  for (const auto& [tokens, width] : {std::pair<int64_t, int64_t>{64, 64}, {512, 256}})
    for (const Pair& pair : pairs(tokens, width)) report(pair, rounds);
  std::printf("\n| tokens x in x out | x W^T: mm / ours, us | dY W | dY^T X |\n|---|--:|--:|--:|\n");
  for (const auto& [tokens, in, out] : {std::array<int64_t, 3>{64, 64, 64},
                                        {128, 128, 128},
                                        {128, 128, 255},
                                        {128, 128, 256},
                                        {256, 256, 256},
                                        {512, 512, 512},
                                        {512, 512, 1536}})
    report_products(tokens, in, out, rounds / 4 + 1);
}
