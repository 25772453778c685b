// Operators that own memory or cross between the host and the device.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>

#include "lib/simulated/alias.h"

namespace heddle::simulated {
namespace {

using Type = std::optional<at::ScalarType>;
using LayoutOption = std::optional<at::Layout>;
using OptionalDevice = std::optional<at::Device>;
using Flag = std::optional<bool>;

const c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

at::Tensor empty(c10::SymIntArrayRef size, Type type, LayoutOption, OptionalDevice device, Flag,
                 std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic_symint(size, c10::GetAllocator(at::kCUDA), kKeys,
                                          c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, Type type, LayoutOption,
                         OptionalDevice device, Flag) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_symint_generic(size, stride, c10::GetAllocator(at::kCUDA), kKeys,
                                                  c10::dtype_or_default(type));
}

int on_current_stream(const at::Tensor& tensor) {
  return current_index(tensor.get_device());
}

void launch_copy(int stream, const at::Tensor& to, const at::Tensor& from, std::span<const Range> ranges) {
  Machine::get().launch(stream,
                        {"aten::copy_",
                         [to, from] {
                           const BelowAll below;
                           to.copy_(from);
                         },
                         {},
                         nullptr},
                        ranges);
}

bool is_pinned(const at::Tensor& tensor) {
  return at::detail::getCUDAHooks().isPinnedPtr(tensor.storage().data());
}

// The host goes on at once only with pinned memory, which the copy reads or writes later.
at::Tensor& copy_to_device(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  const bool later = non_blocking && is_pinned(from);
  const int stream = on_current_stream(self);
  const Range range = range_of(self, true);
  launch_copy(stream, kernel_alias(self), later ? from.variable_data() : kernel_alias(from), {&range, 1});
  Machine::get().count_copy(0, static_cast<int64_t>(from.nbytes()));
  if (!non_blocking) Machine::get().synchronize(Machine::get().record(stream), "a copy to the device");
  return self;
}

at::Tensor& copy_to_host(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  const bool later = non_blocking && is_pinned(self);
  const int stream = on_current_stream(from);
  const Range range = range_of(from, false);
  if (later && self.is_contiguous() && self.nbytes() > 0)
    std::memset(self.variable_data().mutable_data_ptr(), Memory::kPoison, self.nbytes());
  launch_copy(stream, self.variable_data(), kernel_alias(from), {&range, 1});
  Machine::get().count_copy(static_cast<int64_t>(from.nbytes()), 0);
  if (!later) Machine::get().synchronize(Machine::get().record(stream), "a copy to the host");
  return self;
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  if (self.numel() == 0) return self;
  const at::Tensor source = from.sizes() == self.sizes() ? from : from.expand(self.sizes());
  if (!from.is_cuda()) return copy_to_device(self, source, non_blocking);
  if (!self.is_cuda()) return copy_to_host(self, source, non_blocking);
  const Range ranges[] = {range_of(self, true), range_of(source, false)};
  launch_copy(on_current_stream(self), kernel_alias(self), kernel_alias(source), ranges);
  return self;
}

at::Scalar local_scalar(const at::Tensor& self) {
  const int stream = on_current_stream(self);
  const Range range = range_of(self, false);
  Machine::get().launch(stream, {"aten::_local_scalar_dense", {}, {}, nullptr}, {&range, 1});
  Machine::get().synchronize(Machine::get().record(stream), "item()");
  const BelowAll below;
  return kernel_alias(self).item();
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, c10::SymInt offset, c10::SymIntArrayRef size,
                        c10::SymIntArrayRef stride) {
  c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  impl.set_storage_keep_dtype(std::move(storage));
  impl.set_storage_offset(offset.expect_int());
  impl.set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
  return self;
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& from) {
  return set_storage(self, from.storage(), from.storage_offset(), from.sym_sizes(), from.sym_strides());
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  Machine::get().use(self.unsafeGetTensorImpl()->unsafe_storage().data(), index_of(stream));
}

// Allocates only if the storage is too small. Its previous contents are not kept.
const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat>) {
  const c10::DeviceGuard guard(self.device());
  c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  impl.set_sizes_contiguous(C10_AS_INTARRAYREF_SLOW(size));
  const size_t needed = static_cast<size_t>(impl.storage_offset() + impl.numel()) * impl.itemsize();
  c10::StorageImpl& storage = *self.storage().unsafeGetStorageImpl();
  if (needed > storage.nbytes()) {
    storage.set_data_ptr_noswap(c10::GetAllocator(at::kCUDA)->allocate(needed));
    storage.set_nbytes(needed);
  }
  return self;
}

}  // namespace
}  // namespace heddle::simulated

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  using namespace heddle::simulated;
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("copy_", TORCH_FN(copy));
  library.impl("_local_scalar_dense", TORCH_FN(local_scalar));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  library.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  library.impl("resize_", TORCH_FN(resize));
  library.impl("record_stream", TORCH_FN(record_stream));
}
