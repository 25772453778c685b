// The loop is bound by memory: it reads four streams and writes three.
#include "lib/train/optimizer/adamw_cpu.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "core/base/widest.h"

namespace heddle::train {
namespace {

// Without coupled decay Adam has AdamW's bits: no product is fused with a sum (-ffp-contract=off).
template <class Number>
HEDDLE_INLINE void update_numbers(Number* __restrict weights, const Number* __restrict gradients,
                                  Number* __restrict averages, Number* __restrict squares, int64_t count,
                                  const AdamWFactors<UpdateNumber<Number>>* factors) {
  using W = UpdateNumber<Number>;
  const AdamWFactors<W> by = *factors;
  for (int64_t i = 0; i < count; ++i) {
    const W weight = static_cast<W>(weights[i]);
    const W gradient = static_cast<W>(gradients[i]) * by.gradient + by.coupled * weight;
    const W before = static_cast<W>(averages[i]);
    const W average = before + by.rest1 * (gradient - before);
    const W square = by.beta2 * static_cast<W>(squares[i]) + by.rest2 * (gradient * gradient);
    averages[i] = static_cast<Number>(average);
    squares[i] = static_cast<Number>(square);
    weights[i] =
        static_cast<Number>(by.decay * weight - by.step * average / (std::sqrt(square) * by.root + by.eps));
  }
}

}  // namespace

template <class Number>
void adamw_cpu(const AdamWNumbers<Number>& numbers, int64_t count,
               const AdamWFactors<UpdateNumber<Number>>& factors) {
  at::parallel_for(0, count, int64_t{1} << 15, [&](int64_t begin, int64_t end) {
    run_widest<update_numbers<Number>>(numbers.weights + begin, numbers.gradients + begin,
                                       numbers.averages + begin, numbers.squares + begin, end - begin,
                                       &factors);
  });
}

template void adamw_cpu(const AdamWNumbers<float>&, int64_t, const AdamWFactors<float>&);
template void adamw_cpu(const AdamWNumbers<double>&, int64_t, const AdamWFactors<double>&);
template void adamw_cpu(const AdamWNumbers<c10::BFloat16>&, int64_t, const AdamWFactors<float>&);
template void adamw_cpu(const AdamWNumbers<c10::Half>&, int64_t, const AdamWFactors<float>&);

}  // namespace heddle::train
