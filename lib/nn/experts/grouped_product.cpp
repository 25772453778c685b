// One product for each expert with rows, written where it belongs. Numbers of rows change from step to step,
// so float32 on the CPU does not use oneDNN, which prepares and keeps a primitive for each size.
#include "lib/nn/experts/grouped_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include "heddle/nn/device_ops.h"
#include "heddle/nn/linear.h"
#include "lib/nn/cpu/cpu_rows.h"
#include "lib/nn/cpu/grouped_product_cpu.h"

namespace heddle::model {
namespace {

template <class Product>
void for_each_group(std::span<const int64_t> begins, const Product& product) {
  for (size_t e = 0; e + 1 < begins.size(); ++e)
    product(static_cast<int64_t>(e), begins[e], begins[e + 1] - begins[e]);
}

// By the device's kernel; undefined: it has none for these.
at::Tensor on_device(const at::Tensor& a, const at::Tensor& b, std::span<const int64_t> begins) {
  const auto kernel = device_kernel(&DeviceOps::grouped_product, a);
  if (kernel == nullptr || begins.back() == 0) return {};
  return kernel(a, b, begins);
}

// Sets what belongs to groups without rows to zero, which a kernel of a device need not write.
void zero_empty_groups(const at::Tensor& out, std::span<const int64_t> begins) {
  for (size_t first = 0; first + 1 < begins.size();) {
    size_t end = first;
    while (end + 1 < begins.size() && begins[end] == begins[end + 1]) ++end;
    if (end > first) out.narrow(0, static_cast<int64_t>(first), static_cast<int64_t>(end - first)).zero_();
    first = end + 1;
  }
}

}  // namespace

void add_grouped_bias(const at::Tensor& out, std::span<const int64_t> begins, const at::Tensor& bias,
                      const at::Tensor& shares) {
  const at::Tensor column = shares.defined() ? shares.unsqueeze(1).to(out.scalar_type()) : at::Tensor();
  for_each_group(begins, [&](int64_t expert, int64_t begin, int64_t count) {
    if (count == 0) return;
    at::Tensor to = out.narrow(0, begin, count);
    const at::Tensor own = bias.select(0, expert).unsqueeze(0);
    if (column.defined())
      to.addcmul_(column.narrow(0, begin, count), own);
    else
      to.add_(own);
  });
}

at::Tensor grouped_product(const at::Tensor& x, const at::Tensor& weights, std::span<const int64_t> begins) {
  if (at::Tensor made = on_device(x, weights.transpose(1, 2), begins); made.defined()) return made;
  const at::Tensor out = at::empty({x.size(0), weights.size(1)}, x.options());
  if (has_grouped_kernel(x, weights)) {
    grouped_product_cpu(out, x, weights, begins, true);
    return out;
  }
  for_each_group(begins, [&](int64_t expert, int64_t begin, int64_t count) {
    if (count == 0) return;
    matrix_product_into(out.narrow(0, begin, count), x.narrow(0, begin, count),
                        weights.select(0, expert).t());
  });
  return out;
}

at::Tensor grouped_sum(const at::Tensor& rows, std::span<const int64_t> begins, const at::Tensor& shares) {
  const auto experts = static_cast<int64_t>(begins.size()) - 1;
  const at::Tensor out = at::empty({experts, rows.size(1)}, rows.options());
  for_each_group(begins, [&](int64_t expert, int64_t begin, int64_t count) {
    at::Tensor to = out.select(0, expert);
    const at::Tensor own = rows.narrow(0, begin, count);
    if (count == 0)
      to.zero_();
    else if (shares.defined())
      to.copy_((own.to(shares.scalar_type()) * shares.narrow(0, begin, count).unsqueeze(1)).sum(0));
    else
      at::sum_out(to, own, 0);
  });
  return out;
}

at::Tensor grouped_dot(const at::Tensor& rows, const at::Tensor& bias, std::span<const int64_t> begins) {
  const at::ScalarType wide = accumulation_dtype(rows.scalar_type());
  const at::Tensor out = at::empty({rows.size(0)}, rows.options().dtype(wide));
  for_each_group(begins, [&](int64_t expert, int64_t begin, int64_t count) {
    if (count == 0) return;
    const at::Tensor own = rows.narrow(0, begin, count).to(wide) * bias.select(0, expert).to(wide);
    out.narrow(0, begin, count).copy_(own.sum(1));
  });
  return out;
}

at::Tensor grouped_product_back(const at::Tensor& dy, const at::Tensor& weights,
                                std::span<const int64_t> begins) {
  if (at::Tensor made = on_device(dy, weights, begins); made.defined()) return made;
  const at::Tensor out = at::empty({dy.size(0), weights.size(2)}, dy.options());
  if (has_grouped_kernel(dy, weights)) {
    grouped_product_cpu(out, dy, weights, begins, false);
    return out;
  }
  for_each_group(begins, [&](int64_t expert, int64_t begin, int64_t count) {
    if (count == 0) return;
    matrix_product_into(out.narrow(0, begin, count), dy.narrow(0, begin, count), weights.select(0, expert));
  });
  return out;
}

at::Tensor grouped_weight_gradient(const at::Tensor& dy, const at::Tensor& x,
                                   std::span<const int64_t> begins) {
  const auto experts = static_cast<int64_t>(begins.size()) - 1;
  if (at::Tensor made = on_device(dy.t(), x, begins); made.defined()) {
    zero_empty_groups(made, begins);
    return made;
  }
  const at::Tensor out = at::empty({experts, dy.size(1), x.size(1)}, x.options());
  if (has_grouped_kernel(dy, x)) {
    grouped_weight_gradient_cpu(out, dy, x, begins);
    return out;
  }
  for_each_group(begins, [&](int64_t expert, int64_t begin, int64_t count) {
    const at::Tensor to = out.select(0, expert);
    if (count == 0)
      to.zero_();
    else
      matrix_product_into(to, dy.narrow(0, begin, count).t(), x.narrow(0, begin, count));
  });
  return out;
}

}  // namespace heddle::model
