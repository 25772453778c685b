// Hooks on the outputs: values do not change, and a host cannot forget the factor.
#include "core/parallel/last_unit.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "core/model/wrapped_unit.h"
#include "heddle/model/unit.h"

namespace heddle::parallel {
namespace {

class LastUnit final : public model::WrappedUnit {
 public:
  LastUnit(std::unique_ptr<Unit> unit, GradientFactor factor)
      : WrappedUnit(std::move(unit)), factor_(std::move(factor)) {}
  Tensors forward(Tensors inputs, const Batch& batch) override {
    Tensors outputs = unit_->forward(std::move(inputs), batch);
    if (const double factor = *factor_; factor != 1)
      for (const at::Tensor& output : outputs)
        if (output.defined() && output.requires_grad())
          output.register_hook([factor](const at::Tensor& gradient) { return gradient * factor; });
    return outputs;
  }

 private:
  GradientFactor factor_;
};

}  // namespace

GradientFactor multiply_gradients(std::unique_ptr<Unit>& unit) {
  auto factor = std::make_shared<double>(1);
  unit = std::make_unique<LastUnit>(std::move(unit), factor);
  return factor;
}

}  // namespace heddle::parallel
