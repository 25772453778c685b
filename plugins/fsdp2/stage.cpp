// Execution of one unit in mixed precision.
#include "stage.h"

#include <utility>

namespace heddle::fsdp2 {
namespace {

void cast(Tensors& tensors, at::ScalarType dtype) {
  for (at::Tensor& tensor : tensors)
    if (tensor.defined() && tensor.is_floating_point() && tensor.scalar_type() != dtype)
      tensor = tensor.to(dtype);
}

}  // namespace

UnitPrecision of_host(const Precision& precision) {
  return {precision.cast_inputs ? precision.parameters : std::nullopt, precision.outputs};
}

Tensors run_cast(Unit& unit, Tensors inputs, const Batch& batch, const Precision& precision) {
  Tensors outputs;
  if (precision.cast_inputs && precision.parameters) {
    cast(inputs, *precision.parameters);
    Batch mine = batch;
    if (mine.extra.defined() && mine.extra.is_floating_point())
      mine.extra = mine.extra.to(*precision.parameters);
    outputs = unit.forward(std::move(inputs), mine);
  } else {
    outputs = unit.forward(std::move(inputs), batch);
  }
  // A single element is the loss, which is not cast.
  if (precision.outputs && !(outputs.size() == 1 && outputs[0].defined() && outputs[0].numel() == 1))
    cast(outputs, *precision.outputs);
  return outputs;
}

}  // namespace heddle::fsdp2
