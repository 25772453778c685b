// Pointing a slot at another tensor: one pointer write, or in place for a foreign module.
#include "heddle/model/slot.h"

#include <utility>

namespace heddle {

bool ParameterSlot::trainable() const {
  return tensor->requires_grad();
}

at::Tensor ParameterSlot::point(at::Tensor full) {
  const bool needs_gradient = tensor->requires_grad();
  if (foreign) {
    tensor->set_data(full);
    return *tensor;
  }
  full.set_requires_grad(needs_gradient);
  *tensor = std::move(full);
  return *tensor;
}

}  // namespace heddle
