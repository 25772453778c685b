// Attention on devices other than the CPU: flash attention for what it takes, products of LibTorch for the
// rest.
#pragma once

#include "lib/nn/attention/device_ranges.h"

namespace heddle::model {

// Compute attend_ranges() and attend_ranges_backward() with ranges that are on the device already; in.seen is
// not read.
void attend_on_device(const BlockedInputs& in, const DeviceRanges& ranges, const BlockedShape& shape,
                      const at::Tensor& out, const at::Tensor& log_sums, bool onto = false);
void attend_on_device_backward(const BlockedInputs& in, const DeviceRanges& ranges, const BlockedShape& shape,
                               const at::Tensor& d_out, const at::Tensor& out, const at::Tensor& log_sums,
                               const BlockedGradients& into, bool add = false);

}  // namespace heddle::model
