// The choice between MKL, the packed product and the kernel for one row.
#include "heddle/nn/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <limits>

#include "core/base/cpu_settings.h"
#include "lib/nn/cpu/grouped_product_cpu.h"
#include "lib/nn/cpu/row_kernels.h"

namespace heddle::model {
namespace {

// From this size on the packed product is faster than the rest of a call (build/bench_layers).
constexpr int64_t kLarge = int64_t{1} << 22;

// The least number of multiplications of a packed product. MKL uses AVX2 only on AMD.
int64_t least_packed() {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  static const int64_t least = [] {
    if (const std::optional<bool> setting = packed_product_setting()) return *setting ? int64_t{1} : kNever;
#if defined(__x86_64__)
    if (__builtin_cpu_is("amd") && cpu_capability() == CpuCapability::avx512) return kLarge;
#endif
    return kNever;
  }();
  return least;
}

bool is_matrix_of_floats(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.device().is_cpu() &&
         (tensor.stride(0) == 1 || tensor.stride(1) == 1);
}

bool is_packed(const at::Tensor& a, const at::Tensor& b) {
  return a.size(0) * a.size(1) * b.size(1) >= least_packed() && is_matrix_of_floats(a) &&
         is_matrix_of_floats(b);
}

}  // namespace

at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& plus) {
  if (is_row_product(a, b, plus)) return multiply_row(a, b, plus);
  if (!is_packed(a, b)) return plus.defined() ? at::addmm(plus, a, b) : at::mm(a, b);
  const at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options().requires_grad(false));
  matrix_product_cpu(out, a, b, false);
  return plus.defined() ? out.add_(plus) : out;
}

void matrix_product_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& plus) {
  if (!plus.defined() && is_packed(a, b) && is_matrix_of_floats(out) && out.stride(1) == 1)
    matrix_product_cpu(out, a, b, false);
  else if (is_row_product(a, b, plus) || is_packed(a, b))
    out.copy_(matrix_product(a, b, plus));
  else if (plus.defined())
    at::addmm_out(out, plus, a, b);
  else
    at::mm_out(out, a, b);
}

void add_matrix_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  if (is_packed(a, b) && is_matrix_of_floats(sum) && sum.stride(1) == 1)
    matrix_product_cpu(sum, a, b, true);
  else
    sum.addmm_(a, b);
}

}  // namespace heddle::model
