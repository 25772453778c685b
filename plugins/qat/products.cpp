// Products of inputs and weights with fake quantization.
#include "products.h"

#include <memory>
#include <utility>

#include "heddle/model/batch.h"

namespace heddle::qat {
namespace {

class FakeQuantizedProducts final : public model::LinearProducts {
 public:
  explicit FakeQuantizedProducts(const How& how) : how_(how) {}

  at::Tensor forward(size_t, const at::Tensor& rows, const at::Tensor& weight,
                     const at::Tensor& bias) override {
    return model::matrix_product(input_of(rows).value, rounded_weight(weight, how_.weights).value.t(), bias);
  }
  void end_forward() override { input_ = {}; }

  model::LinearGradients backward(size_t, const at::Tensor& dy, const at::Tensor& rows,
                                  const at::Tensor& weight, model::LinearWanted wanted) override {
    const FakeQuantized of_weight = rounded_weight(weight, how_.weights);
    model::LinearGradients out;
    if (wanted != model::LinearWanted::rows)
      out.weight = through(of_weight, model::matrix_product(dy.t(), input_of(rows).value));
    if (wanted == model::LinearWanted::weight) return out;
    out.rows = model::matrix_product(dy, of_weight.value);
    if (how_.tokens) out.rows = through(input_of(rows), out.rows);
    return out;
  }
  // The gradient of a quantized input depends on the input.
  bool keeps_rows() const override { return how_.tokens; }

 private:
  // Inputs of the products, quantized once for all layers.
  const FakeQuantized& input_of(const at::Tensor& rows) {
    if (!input_.value.defined())
      input_ = how_.tokens ? rounded_tokens(rows) : FakeQuantized{rows, {}, {}, {}};
    return input_;
  }

  How how_;
  FakeQuantized input_;
};

}  // namespace

model::FewTensors linears(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                          const How& how) {
  if (batch.step < how.first_step) return model::products(layers, x, batch);
  return model::products_by(std::make_unique<FakeQuantizedProducts>(how), layers, x);
}

}  // namespace heddle::qat
