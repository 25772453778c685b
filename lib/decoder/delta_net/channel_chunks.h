// The delta rule with a decay of each channel of keys (Kimi Delta Attention) by chunks.
#pragma once

#include <ATen/core/Tensor.h>

#include "lib/decoder/delta_net/delta_chunks.h"

namespace heddle::decoder {

// As delta_forward() and delta_backward(), of inputs whose decay has channels.
DeltaResult channel_forward(const DeltaChunks& in, const at::Tensor& first);
DeltaGradients channel_backward(const DeltaChunks& in, const at::Tensor& d_out);

}  // namespace heddle::decoder
