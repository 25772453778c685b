// Copies of a batch's tensors on a device.
#include "lib/train/optimizer/on_device.h"

namespace heddle::train {

Batch on_device(const Batch& batch, c10::Device device) {
  Batch out = batch;
  for (const BatchMember& member : kBatchMembers) {
    at::Tensor& tensor = out.*member.tensor;
    if (!tensor.defined() || tensor.device() == device) continue;
    if (member.cut == RowCut::documents && device.is_cuda())
      tensor = tensor.clone();  // its giver may fill it again
    else
      tensor = tensor.to(tensor.options().device(device), /*non_blocking=*/true);
  }
  return out;
}

}  // namespace heddle::train
