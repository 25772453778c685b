// Allocating and freeing the storage of an unsharded tensor.
#include "heddle/sharding/transient_storage.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "heddle/parallel/shard.h"

namespace heddle::sharding {

DoubleBuffer::DoubleBuffer(size_t bytes, c10::Device device) : bytes_(bytes) {
  for (at::Tensor& buffer : buffers_)
    buffer = at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device));
}

int DoubleBuffer::acquire() {
  for (int index = 0; index < 2; ++index)
    if (!std::exchange(busy_[index], true)) return index;
  return -1;
}

TransientStorage::TransientStorage(at::Tensor tensor)
    : tensor_(std::move(tensor)), bytes_(tensor_.storage().nbytes()) {}

// A view of a fixed buffer holds the buffer, so that it stays valid when the DoubleBuffer is destroyed first.
void TransientStorage::acquire() {
  if (std::exchange(taken_, true) || there_) return void(there_ = true);
  there_ = true;
  place_ = double_buffer_ != nullptr ? double_buffer_->acquire() : -1;
  if (place_ < 0) return parallel::resize_storage(tensor_, bytes_);
  auto* buffer = new at::Tensor(double_buffer_->buffer(place_));
  c10::StorageImpl& storage = *tensor_.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap({buffer->mutable_data_ptr(), buffer,
                               [](void* held) { delete static_cast<at::Tensor*>(held); }, tensor_.device()});
  storage.set_nbytes(bytes_);
}

void TransientStorage::release() {
  if (!std::exchange(taken_, false) || kept_) return;
  there_ = false;
  parallel::resize_storage(tensor_, 0);
  if (place_ >= 0) double_buffer_->release(std::exchange(place_, -1));
}

}  // namespace heddle::sharding
