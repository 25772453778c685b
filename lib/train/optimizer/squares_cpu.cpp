// Sixteen running sums, in the widest registers of the processor.
#include "lib/train/optimizer/squares_cpu.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>

#include "core/base/widest.h"

namespace heddle::train {
namespace {

template <class Number>
HEDDLE_INLINE double sum_squares(const Number* values, int64_t count) {
  constexpr int64_t kLanes = 16;
  double lanes[kLanes] = {};
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    __builtin_prefetch(values + at + 1024);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[at + lane]);
      lanes[lane] += value * value;
    }
  }
  for (; at < count; ++at) lanes[0] += static_cast<double>(values[at]) * static_cast<double>(values[at]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

template <class Number>
double squares_cpu(const Number* values, int64_t count) {
  return run_widest<sum_squares<Number>>(values, count);
}

template double squares_cpu(const float*, int64_t);
template double squares_cpu(const double*, int64_t);
template double squares_cpu(const c10::BFloat16*, int64_t);
template double squares_cpu(const c10::Half*, int64_t);

double powers_cpu(const double* values, int64_t count, double scale, double power) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::pow(std::abs(values[i]) / scale, power);
  return sum;
}

}  // namespace heddle::train
