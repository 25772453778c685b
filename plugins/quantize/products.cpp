// Products with packed weights. A weight is unpacked for each product and freed after it.
#include "products.h"

#include <memory>
#include <utility>

namespace heddle::quantize {
namespace {

class PackedProducts final : public model::LinearProducts {
 public:
  PackedProducts(std::span<Linear* const> layers, const Packed& packed) : compute_(packed.compute) {
    for (const Linear* layer : layers) forms_.push_back(packed.forms.at(layer));
  }

  at::Tensor forward(size_t index, const at::Tensor& rows, const at::Tensor& weight,
                     const at::Tensor& bias) override {
    if (!rows_.defined()) rows_ = rows.to(compute_);
    return model::matrix_product(rows_, unpack(weight, forms_[index], compute_).t(),
                                 bias.defined() ? bias.to(compute_) : bias);
  }
  void end_forward() override { rows_.reset(); }

  model::LinearGradients backward(size_t index, const at::Tensor& dy, const at::Tensor&,
                                  const at::Tensor& weight, model::LinearWanted) override {
    return {{}, model::matrix_product(dy.to(compute_), unpack(weight, forms_[index], compute_))};
  }

 private:
  c10::SmallVector<Form, 3> forms_;
  at::ScalarType compute_;
  at::Tensor rows_;  // in the dtype of the products, shared by all layers
};

}  // namespace

model::FewTensors linears(std::span<Linear* const> layers, const at::Tensor& x, const Packed& packed) {
  return model::products_by(std::make_unique<PackedProducts>(layers, packed), layers, x);
}

}  // namespace heddle::quantize
