// Allocation of staging buffers, and reuse of freed storages.
#include "memory.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "heddle/nn/device_ops.h"
#include "heddle/parallel/shard.h"

namespace heddle::fsdp2 {
namespace {

// Whether the tensor is on the CPU, or in the dry step of a CPU.
bool is_on_cpu(const at::Tensor& tensor) {
  return tensor.is_cpu() || (tensor.is_meta() && model::meta_ops().rms_norm == nullptr);
}

}  // namespace

void Memory::expect(at::ScalarType dtype, int64_t elements) {
  for (auto& [known, largest] : largest_)
    if (known == dtype) return void(largest = std::max(largest, elements));
  largest_.emplace_back(dtype, elements);
}

at::Tensor Memory::take(at::ScalarType dtype, c10::Device device) {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].scalar_type() != dtype || buffers_[i].device() != device) continue;
    std::swap(buffers_[i], buffers_.back());
    at::Tensor found = std::move(buffers_.back());
    buffers_.pop_back();
    return found;
  }
  int64_t elements = 0;
  for (auto& [known, largest] : largest_)
    if (known == dtype) elements = largest;
  return at::empty({elements}, at::TensorOptions().dtype(dtype).device(device));
}

void Memory::fill(const at::Tensor& alias, size_t bytes) {
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return k.bytes == bytes; });
  if (!is_on_cpu(alias) || found == kept_.end()) return parallel::resize_storage(alias, bytes);
  c10::StorageImpl& storage = *alias.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(std::move(found->data));
  storage.set_nbytes(bytes);
  kept_.erase(found);
}

void Memory::free(const at::Tensor& alias) {
  c10::StorageImpl& storage = *alias.storage().unsafeGetStorageImpl();
  if (!is_on_cpu(alias) || storage.nbytes() == 0) return parallel::resize_storage(alias, 0);
  if (kept_.size() == kKept) kept_.erase(kept_.begin());
  kept_.push_back({storage.nbytes(), storage.set_data_ptr({nullptr, alias.device()})});
  storage.set_nbytes(0);
}

}  // namespace heddle::fsdp2
