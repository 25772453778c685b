// Tensors that kernels see in the place of a device's: the CPU's tensors over the same bytes, and meta's.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/FunctionRef.h>

#include "heddle/model/autograd_node.h"
#include "lib/simulated/current.h"

namespace heddle::simulated {

// Operators in this scope are the kernels themselves: no autograd, no autocast.
class BelowAll {
 private:
  at::NoGradGuard no_gradients_;
  model::BelowAutograd below_;
};

// The bytes that a tensor can touch: from its first element to its last.
Range range_of(const at::Tensor& tensor, bool writes);

// For a device's tensor: the CPU's over the same bytes, which owns nothing. For one of the CPU: a copy, as a
// launch takes it. Undefined stays undefined.
at::Tensor kernel_alias(const at::Tensor& tensor);
// Returns a tensor of the same shape on `device`: on meta, or zeros on the CPU.
at::Tensor shape_alias(const at::Tensor& tensor, c10::Device device);
// A device's tensor over the storage of `base`, with the shape of a kernel's view.
at::Tensor view_like(const at::Tensor& base, const at::Tensor& view);

// Every tensor of an argument, lists included.
void visit(const c10::IValue& value, c10::function_ref<void(const at::Tensor&)> see);
c10::IValue replaced(const c10::IValue& value, c10::function_ref<at::Tensor(const at::Tensor&)> by);

}  // namespace heddle::simulated
