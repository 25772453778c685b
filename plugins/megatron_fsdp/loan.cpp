// Taking memory and giving it back.
#include "loan.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "heddle/parallel/storage.h"

namespace heddle::megatron_fsdp {

Lane::Lane(size_t bytes, c10::Device device) : bytes_(bytes) {
  for (at::Tensor& buffer : buffers_)
    buffer = at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device));
}

int Lane::take() {
  for (int index = 0; index < 2; ++index)
    if (!std::exchange(busy_[index], true)) return index;
  return -1;
}

Loan::Loan(at::Tensor tensor) : tensor_(std::move(tensor)), bytes_(tensor_.storage().nbytes()) {}

// A view of a lane's buffer holds the buffer, so that nothing dangles when the lane goes first.
void Loan::take() {
  if (std::exchange(taken_, true) || there_) return void(there_ = true);
  there_ = true;
  place_ = lane_ != nullptr ? lane_->take() : -1;
  if (place_ < 0) return parallel::resize_storage(tensor_, bytes_);
  auto* buffer = new at::Tensor(lane_->buffer(place_));
  c10::StorageImpl& storage = *tensor_.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap({buffer->mutable_data_ptr(), buffer,
                               [](void* held) { delete static_cast<at::Tensor*>(held); }, tensor_.device()});
  storage.set_nbytes(bytes_);
}

void Loan::give() {
  if (!std::exchange(taken_, false) || kept_) return;
  there_ = false;
  parallel::resize_storage(tensor_, 0);
  if (place_ >= 0) lane_->give(std::exchange(place_, -1));
}

}  // namespace heddle::megatron_fsdp
