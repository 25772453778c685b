// Making the parameters of a layer, on meta or on a real device.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"
#include "heddle/model/slot.h"

namespace heddle::model {

// A trainable tensor. On meta it has no values; on a real device they follow `init`, from the device's
// default generator.
HEDDLE_API at::Tensor make_parameter(at::IntArrayRef shape, const Init& init,
                                     const at::TensorOptions& options);

}  // namespace heddle::model
