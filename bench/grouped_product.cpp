// Products of experts with their own rows against one dense product of as many multiplications, in turn:
// forward, and both products of the backward.
//   bench_grouped_product [rounds] [bfloat16]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string_view>
#include <vector>

#include "heddle/nn/linear.h"
#include "lib/nn/experts/grouped_product.h"
#include "trainer/cli/main/memory_settings.h"

namespace {

using namespace heddle;

// Processor time of this thread, without other work of the machine.
double seconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  work();
  return now() - start;
}

// Unequal numbers of rows that sum to `rows`: expert e gets about (1 + e % 3) / 2 of the mean.
std::vector<int64_t> shares(int64_t rows, int64_t experts) {
  double total = 0, sum = 0;
  for (int64_t e = 0; e < experts; ++e) total += static_cast<double>(1 + e % 3);
  std::vector<int64_t> begins{0};
  for (int64_t e = 0; e < experts; ++e) {
    sum += static_cast<double>(1 + e % 3);
    begins.push_back(e + 1 == experts ? rows : static_cast<int64_t>(static_cast<double>(rows) * sum / total));
  }
  return begins;
}

struct Way {
  const char* name;
  std::function<void()> grouped, dense;
};

void compare(int64_t rows, int64_t experts, int64_t in, int64_t out, int rounds, at::ScalarType dtype) {
  const at::Tensor x = at::randn({rows, in}).to(dtype), dy = at::randn({rows, out}).to(dtype);
  const at::Tensor weights = at::randn({experts, out, in}).to(dtype), one = weights[0];
  const std::vector<int64_t> begins = shares(rows, experts);
  const std::array<Way, 3> ways = {{{"forward", [&] { model::grouped_product(x, weights, begins); },
                                     [&] { model::matrix_product(x, one.t()); }},
                                    {"dX", [&] { model::grouped_product_back(dy, weights, begins); },
                                     [&] { model::matrix_product(dy, one); }},
                                    {"dW", [&] { model::grouped_weight_gradient(dy, x, begins); },
                                     [&] { model::matrix_product(dy.t(), x); }}}};
  for (const Way& way : ways) {
    double grouped = 1e9, dense = 1e9;
    for (int round = 0; round < rounds; ++round) {
      grouped = std::min(grouped, seconds(way.grouped));
      dense = std::min(dense, seconds(way.dense));
    }
    const double work = 2e-9 * static_cast<double>(rows * in * out);
    std::printf("| %s | %ld | %ld x %ld x %ld | %.1f | %.1f | %.2f |\n", way.name, experts, rows, in, out,
                work / grouped, work / dense, dense / grouped);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  const bool narrow = argc > 2 && std::string_view(argv[2]) == "bfloat16";
  const at::ScalarType dtype = narrow ? at::kBFloat16 : at::kFloat;
  cli::keep_memory_between_steps();  // as `heddle train` does
  at::set_num_threads(1);
  at::NoGradGuard no_gradients;
  std::printf(
      "| product | experts | rows x in x out | grouped GFLOP/s | dense GFLOP/s | grouped / dense |\n");
  std::printf("|---|--:|---|--:|--:|--:|\n");
  for (const int64_t experts : {8, 32, 128}) {
    compare(2048, experts, 256, 512, rounds, dtype);
    compare(16384, experts, 512, 1024, std::max(1, rounds / 2), dtype);
  }
}
