// Replaces LibTorch's CPU matrix products by products with another summation order, as on another processor.
// HEDDLE_TEST_SUMS=N in the environment of a test program seeds the order.
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace heddle::tests {
namespace {

using at::Scalar;
using at::Tensor;

// Returns one summation order per depth, so that a row's bits do not depend on the other rows.
Tensor order_of(int64_t depth) {
  static std::mutex one_at_a_time;
  static std::map<int64_t, Tensor> orders;
  const std::lock_guard lock(one_at_a_time);
  Tensor& order = orders[depth];
  if (!order.defined()) {
    std::vector<int64_t> places(static_cast<size_t>(depth));
    std::iota(places.begin(), places.end(), 0);
    std::mt19937_64 random(std::stoull(std::getenv("HEDDLE_TEST_SUMS")) * 1000003 +
                           static_cast<uint64_t>(depth));
    std::shuffle(places.begin(), places.end(), random);
    order = at::tensor(places, at::kLong);
  }
  return order;
}

// The two factors with their columns and rows permuted by the summation order.
struct Factors {
  Factors(const Tensor& a, const Tensor& b)
      : left(a.index_select(-1, order_of(a.size(-1)))), right(b.index_select(-2, order_of(b.size(-2)))) {}
  Tensor left, right;
};

Tensor mm(const Tensor& a, const Tensor& b) {
  const Factors of(a, b);
  return at::cpu::mm(of.left, of.right);
}
Tensor& mm_out(const Tensor& a, const Tensor& b, Tensor& out) {
  const Factors of(a, b);
  return at::cpu::mm_out(out, of.left, of.right);
}
Tensor bmm(const Tensor& a, const Tensor& b) {
  const Factors of(a, b);
  return at::cpu::bmm(of.left, of.right);
}
Tensor& bmm_out(const Tensor& a, const Tensor& b, Tensor& out) {
  const Factors of(a, b);
  return at::cpu::bmm_out(out, of.left, of.right);
}

// addmm and baddbmm: beta * plus + alpha * a b.
#define HEDDLE_SUMMED(name)                                                                    \
  Tensor name(const Tensor& plus, const Tensor& a, const Tensor& b, const Scalar& beta,        \
              const Scalar& alpha) {                                                           \
    const Factors of(a, b);                                                                    \
    return at::cpu::name(plus, of.left, of.right, beta, alpha);                                \
  }                                                                                            \
  Tensor& name##_out(const Tensor& plus, const Tensor& a, const Tensor& b, const Scalar& beta, \
                     const Scalar& alpha, Tensor& out) {                                       \
    const Factors of(a, b);                                                                    \
    return at::cpu::name##_out(out, plus, of.left, of.right, beta, alpha);                     \
  }                                                                                            \
  Tensor& name##_onto(Tensor& plus, const Tensor& a, const Tensor& b, const Scalar& beta,      \
                      const Scalar& alpha) {                                                   \
    const Factors of(a, b);                                                                    \
    return at::cpu::name##_(plus, of.left, of.right, beta, alpha);                             \
  }
HEDDLE_SUMMED(addmm)
HEDDLE_SUMMED(baddbmm)

// Replaces LibTorch's kernels while the program runs.
struct OtherSums {
  OtherSums() : library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__) {
    library.impl("mm", TORCH_FN(mm));
    library.impl("mm.out", TORCH_FN(mm_out));
    library.impl("bmm", TORCH_FN(bmm));
    library.impl("bmm.out", TORCH_FN(bmm_out));
    library.impl("addmm", TORCH_FN(addmm));
    library.impl("addmm.out", TORCH_FN(addmm_out));
    library.impl("addmm_", TORCH_FN(addmm_onto));
    library.impl("baddbmm", TORCH_FN(baddbmm));
    library.impl("baddbmm.out", TORCH_FN(baddbmm_out));
    library.impl("baddbmm_", TORCH_FN(baddbmm_onto));
  }
  torch::Library library;
};

const std::unique_ptr<OtherSums> other_sums =
    std::getenv("HEDDLE_TEST_SUMS") == nullptr ? nullptr : std::make_unique<OtherSums>();

}  // namespace
}  // namespace heddle::tests
