// Copies of a batch's tensors on a device.
#include "heddle/train/on_device.h"

namespace heddle::train {

Batch on_device(const Batch& batch, c10::Device device) {
  Batch out = batch;
  for (at::Tensor* tensor : {&out.tokens, &out.labels, &out.positions, &out.extra})
    if (tensor->defined() && tensor->device() != device)
      *tensor = tensor->to(tensor->options().device(device), /*non_blocking=*/true);
  return out;
}

}  // namespace heddle::train
