// Delta rule with a decay per key channel (Kimi Delta Attention) by chunks.
#pragma once

#include <ATen/core/Tensor.h>

#include "lib/decoder/delta_net/delta_chunks.h"

namespace heddle::decoder {

// Like delta_forward() and delta_backward(), for inputs with per-channel decays.
DeltaResult channel_forward(const DeltaChunks& in, const at::Tensor& first);
DeltaGradients channel_backward(const DeltaChunks& in, const at::Tensor& d_out);

}  // namespace heddle::decoder
