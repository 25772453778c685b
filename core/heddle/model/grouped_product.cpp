// One product for each expert with rows, written where it belongs.
#include "heddle/model/grouped_product.h"

#include <ATen/ops/empty.h>

#include "heddle/model/matrix_product.h"

namespace heddle::model {
namespace {

template <class Product>
void for_each_group(std::span<const int64_t> begins, const Product& product) {
  for (size_t e = 0; e + 1 < begins.size(); ++e)
    product(static_cast<int64_t>(e), begins[e], begins[e + 1] - begins[e]);
}

}  // namespace

at::Tensor grouped_product(const at::Tensor& x, const at::Tensor& weights, std::span<const int64_t> begins) {
  const at::Tensor out = at::empty({x.size(0), weights.size(1)}, x.options());
  for_each_group(begins, [&](int64_t expert, int64_t begin, int64_t count) {
    if (count == 0) return;
    matrix_product_into(out.narrow(0, begin, count), x.narrow(0, begin, count),
                        weights.select(0, expert).t());
  });
  return out;
}

at::Tensor grouped_product_back(const at::Tensor& dy, const at::Tensor& weights,
                                std::span<const int64_t> begins) {
  const at::Tensor out = at::empty({dy.size(0), weights.size(2)}, dy.options());
  for_each_group(begins, [&](int64_t expert, int64_t begin, int64_t count) {
    if (count == 0) return;
    matrix_product_into(out.narrow(0, begin, count), dy.narrow(0, begin, count), weights.select(0, expert));
  });
  return out;
}

at::Tensor grouped_weight_gradient(const at::Tensor& dy, const at::Tensor& x,
                                   std::span<const int64_t> begins) {
  const auto experts = static_cast<int64_t>(begins.size()) - 1;
  const at::Tensor out = at::empty({experts, dy.size(1), x.size(1)}, x.options());
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
