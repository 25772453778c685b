// Copies of a batch's tensors on a device.
#include "lib/train/optimizer/on_device.h"

namespace heddle::train {

Batch on_device(const Batch& batch, c10::Device device) {
  Batch out = batch;
  for (const BatchMember& member : kBatchMembers)
    if (at::Tensor& tensor = out.*member.tensor; tensor.defined() && tensor.device() != device)
      tensor = tensor.to(tensor.options().device(device), /*non_blocking=*/true);
  return out;
}

}  // namespace heddle::train
