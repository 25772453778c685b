// Products that each thread computes and times for itself.
#include "lib/nn/measure/product_rate_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "heddle/nn/linear.h"

namespace heddle::model {
namespace {

constexpr double kPatience = 0.02;  // seconds of processor time
constexpr int kTimed = 3;           // products of a size: one alone may be disturbed
constexpr int64_t kSmallest = 64, kLargest = 512;

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of_product(const at::Tensor& a) {
  const double begin = processor_seconds();
  matrix_product(a, a.t());
  return std::max(processor_seconds() - begin, 1e-9);
}

// Rate of products of a size that takes about half a millisecond.
double best_rate(at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  const double begin = processor_seconds();
  double best = 0;
  int64_t size = kSmallest;
  at::Tensor a;
  for (int timed = 0; timed < kTimed || processor_seconds() - begin < kPatience; ++timed) {
    if (!a.defined() || a.size(0) != size) {
      a = at::full({size, size}, 0.5, dtype);
      seconds_of_product(a);  // the first of a size sets up buffers, and code that is made at first use
      timed = 0;
    }
    const double seconds = seconds_of_product(a);
    const auto n = static_cast<double>(size);
    best = std::max(best, 2 * n * n * n / seconds);
    if (seconds < 5e-4 && size < kLargest) size *= 2;
  }
  return best;
}

}  // namespace

double product_rate_cpu(c10::ScalarType dtype) {
  std::vector<double> rates(static_cast<size_t>(at::get_num_threads()), 0);
  // Within a parallel region the libraries of products use one thread.
  at::parallel_for(0, static_cast<int64_t>(rates.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) rates[static_cast<size_t>(i)] = best_rate(dtype);
  });
  return *std::max_element(rates.begin(), rates.end());
}

}  // namespace heddle::model
