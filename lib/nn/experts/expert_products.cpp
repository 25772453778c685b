// The products of experts by the kernels of their device.
#include "heddle/nn/experts.h"
#include "lib/nn/experts/grouped_product.h"

namespace heddle::model {

ExpertProducts::~ExpertProducts() = default;

at::Tensor ExpertProducts::forward(const at::Tensor& x, const at::Tensor& weights,
                                   std::span<const int64_t> begins) const {
  return grouped_product(x, weights, begins);
}

at::Tensor ExpertProducts::backward(const at::Tensor& dy, const at::Tensor& weights,
                                    std::span<const int64_t> begins) const {
  return grouped_product_back(dy, weights, begins);
}

at::Tensor ExpertProducts::weight_gradient(const at::Tensor& dy, const at::Tensor& x,
                                           std::span<const int64_t> begins) const {
  return grouped_weight_gradient(dy, x, begins);
}

}  // namespace heddle::model
