// The addresses of a device and of its kernels differ by a constant.
#include "lib/simulated/alias.h"

#include <ATen/core/List.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/TensorImpl.h>

namespace heddle::simulated {

Range range_of(const at::Tensor& tensor, bool writes) {
  if (tensor.numel() == 0) return {nullptr, nullptr, writes};
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  const auto element = static_cast<int64_t>(tensor.element_size());
  const auto* begin =
      static_cast<const std::byte*>(tensor.storage().data()) + tensor.storage_offset() * element;
  return {begin, begin + (last + 1) * element, writes, static_cast<size_t>(tensor.numel() * element)};
}

at::Tensor kernel_alias(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (!tensor.is_cuda()) {
    at::Tensor copy = tensor.is_cpu() ? tensor.variable_data().clone() : tensor;
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
      copy.unsafeGetTensorImpl()->set_wrapped_number(true);
    return copy;
  }
  // The whole storage, since a view may go beyond the tensor it is made of.
  const void* begin = tensor.storage().data();
  void* bytes = begin == nullptr ? nullptr : Machine::get().kernel_bytes(begin);
  const auto elements = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  return at::from_blob(bytes, {elements}, at::TensorOptions(tensor.scalar_type()))
      .as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

at::Tensor shape_alias(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  const at::TensorOptions options = at::TensorOptions(tensor.scalar_type()).device(device);
  at::Tensor made = at::empty_strided(tensor.sizes(), tensor.strides(), options);
  return device.is_cpu() ? made.zero_() : made;
}

at::Tensor view_like(const at::Tensor& base, const at::Tensor& view) {
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(base.storage()), base.key_set(), view.dtype());
  c10::TensorImpl& impl = *made.unsafeGetTensorImpl();
  const auto* begin = Machine::get().kernel_bytes(base.storage().data());
  const auto* at = static_cast<const std::byte*>(view.const_data_ptr());
  impl.set_storage_offset(base.storage().data() == nullptr || at == nullptr
                              ? base.storage_offset()
                              : (at - begin) / static_cast<int64_t>(view.element_size()));
  impl.set_sizes_and_strides(view.sizes(), view.strides());
  return made;
}

void visit(const c10::IValue& value, c10::function_ref<void(const at::Tensor&)> see) {
  if (value.isTensor()) return see(value.toTensor());
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector()) see(tensor);
  if (value.isOptionalTensorList())
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor) see(*tensor);
}

c10::IValue replaced(const c10::IValue& value, c10::function_ref<at::Tensor(const at::Tensor&)> by) {
  if (value.isTensor()) return by(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(by(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor ? std::optional(by(*tensor)) : std::nullopt);
    return list;
  }
  return value;
}

}  // namespace heddle::simulated
