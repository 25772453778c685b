// The choice between MKL, oneDNN and the kernel for one row.
#include "heddle/nn/linear.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <optional>
#include <string_view>

#include "lib/nn/cpu/row_product_cpu.h"

namespace heddle::model {
namespace {

// From this size on oneDNN's gain exceeds the cost of calling its operator (build/bench_layers).
constexpr int64_t kLarge = int64_t{1} << 22;

// LibTorch's compiler calls this operator for float32: input [m, k], weight [n, k].
using Linear = at::Tensor(const at::Tensor& input, const at::Tensor& weight,
                          const std::optional<at::Tensor>& bias, std::string_view attribute,
                          c10::List<std::optional<at::Scalar>> scalars,
                          std::optional<std::string_view> algorithm);
using LinearOperator = c10::TypedOperatorHandle<Linear>;

std::optional<LinearOperator> find_operator() {
#if defined(__x86_64__)
  if (!__builtin_cpu_is("amd") || !__builtin_cpu_supports("avx512f")) return std::nullopt;
  const auto found = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  if (!found || !at::hasMKLDNN()) return std::nullopt;
  return found->typed<Linear>();
#else
  return std::nullopt;
#endif
}

// Null: MKL is as fast here, or there is no oneDNN.
const LinearOperator* onednn() {
  static const std::optional<LinearOperator> linear = find_operator();
  return linear ? &*linear : nullptr;
}

bool is_matrix_of_floats(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.device().is_cpu() &&
         (tensor.stride(0) == 1 || tensor.stride(1) == 1);
}

bool is_large(const at::Tensor& a, const at::Tensor& b) {
  return a.size(0) * a.size(1) * b.size(1) >= kLarge && is_matrix_of_floats(a) && is_matrix_of_floats(b) &&
         onednn() != nullptr && at::globalContext().userEnabledMkldnn();
}

at::Tensor large(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& row) {
  return onednn()->call(a, b.t(), row, "none", c10::List<std::optional<at::Scalar>>(), "");
}

}  // namespace

at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& plus) {
  if (is_row_product(a, b, plus)) return multiply_row(a, b, plus);
  if (!is_large(a, b)) return plus.defined() ? at::addmm(plus, a, b) : at::mm(a, b);
  if (!plus.defined()) return large(a, b, std::nullopt);
  return plus.dim() == 1 ? large(a, b, plus) : large(a, b, std::nullopt).add_(plus);
}

void matrix_product_into(at::Tensor out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& plus) {
  if (is_row_product(a, b, plus) || is_large(a, b))
    out.copy_(matrix_product(a, b, plus));
  else if (plus.defined())
    at::addmm_out(out, plus, a, b);
  else
    at::mm_out(out, a, b);
}

void add_matrix_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  if (is_large(a, b))
    sum.add_(large(a, b, std::nullopt));
  else
    sum.addmm_(a, b);
}

}  // namespace heddle::model
