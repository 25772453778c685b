// Two grouped products of a low rank each.
#include "lib/nn/experts/expert_adapters.h"

#include <ATen/TensorOperators.h>

#include "lib/nn/experts/grouped_product.h"

namespace heddle::model {

void add_adapter(at::Tensor& onto, const at::Tensor& x, const ExpertAdapter& adapter,
                 std::span<const int64_t> begins) {
  onto.add_(grouped_product(grouped_product(x, adapter.a, begins).mul_(adapter.scale), adapter.b, begins));
}

at::Tensor add_adapter_back(at::Tensor& dx, const at::Tensor& dy, const ExpertAdapter& adapter,
                            std::span<const int64_t> begins) {
  at::Tensor back = grouped_product_back(dy, adapter.b, begins).mul_(adapter.scale);
  dx.add_(grouped_product_back(back, adapter.a, begins));
  return back;
}

at::Tensor gradient_of_a(const at::Tensor& back, const at::Tensor& x, std::span<const int64_t> begins) {
  return grouped_weight_gradient(back, x, begins);
}

at::Tensor gradient_of_b(const at::Tensor& dy, const at::Tensor& x, const ExpertAdapter& adapter,
                         std::span<const int64_t> begins) {
  return grouped_weight_gradient(dy, grouped_product(x, adapter.a, begins).mul_(adapter.scale), begins);
}

void SavedAdapter::save(const ExpertAdapter& adapter) {
  a.save_weight(adapter.a);
  b.save_weight(adapter.b);
  scale = adapter.scale;
}

ExpertAdapter SavedAdapter::unpack(Autocast* autocast) {
  const auto used = [&](const at::Tensor& weight) {
    return autocast == nullptr ? weight : autocast->weight(weight);
  };
  return {used(a.unpack()), used(b.unpack()), scale};
}

void SavedAdapter::reset() {
  a.reset();
  b.reset();
}

}  // namespace heddle::model
