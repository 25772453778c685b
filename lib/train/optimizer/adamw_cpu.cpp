// The loop is bound by memory: it reads four streams and writes three.
#include "lib/train/optimizer/adamw_cpu.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "core/base/widest.h"

namespace heddle::train {
namespace {

HEDDLE_WIDEST void update_numbers(float* __restrict weights, const float* __restrict gradients,
                                  float* __restrict averages, float* __restrict squares, int64_t count,
                                  const AdamWFactors& factors) {
  const AdamWFactors by = factors;
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = gradients[i] * by.gradient;
    const float average = averages[i] + by.rest1 * (gradient - averages[i]);
    const float square = by.beta2 * squares[i] + by.rest2 * (gradient * gradient);
    averages[i] = average;
    squares[i] = square;
    weights[i] = by.decay * weights[i] - by.step * average / (std::sqrt(square) * by.root + by.eps);
  }
}

// A loop of its own, so that AdamW's has its bits: a sum of products may be rounded once.
HEDDLE_WIDEST void update_coupled(float* __restrict weights, const float* __restrict gradients,
                                  float* __restrict averages, float* __restrict squares, int64_t count,
                                  const AdamWFactors& factors) {
  const AdamWFactors by = factors;
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = gradients[i] * by.gradient + by.coupled * weights[i];
    const float average = averages[i] + by.rest1 * (gradient - averages[i]);
    const float square = by.beta2 * squares[i] + by.rest2 * (gradient * gradient);
    averages[i] = average;
    squares[i] = square;
    weights[i] -= by.step * average / (std::sqrt(square) * by.root + by.eps);
  }
}

}  // namespace

void adamw_cpu(const AdamWNumbers& numbers, int64_t count, const AdamWFactors& factors) {
  at::parallel_for(0, count, int64_t{1} << 15, [&](int64_t begin, int64_t end) {
    const auto update = factors.coupled != 0 ? update_coupled : update_numbers;
    update(numbers.weights + begin, numbers.gradients + begin, numbers.averages + begin,
           numbers.squares + begin, end - begin, factors);
  });
}

}  // namespace heddle::train
