// Making the parameters of a layer, on meta or on a real device.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"
#include "heddle/model/slot.h"

namespace heddle::model {

// `values`: fp32 on the CPU, contiguous, draws of N(0, 1) of a box of a parameter of `shape`; they become
// what init.function makes of them. Throws Error{input} without one.
void apply_function(const at::Tensor& values, const Init& init, at::IntArrayRef shape,
                    at::IntArrayRef offset);

// A trainable tensor; one of integers does not train. On meta it has no values; on a real device they follow
// `init`, from the device's default generator.
HEDDLE_API at::Tensor make_parameter(at::IntArrayRef shape, const Init& init,
                                     const at::TensorOptions& options);

}  // namespace heddle::model
