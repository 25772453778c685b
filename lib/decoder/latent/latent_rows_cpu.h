// CPU kernels of latent attention: assemble heads, and split gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/nn/rotary.h"
#include "lib/decoder/latent/latent_heads.h"

namespace heddle::decoder {

// Whether the tensor is a CPU matrix of float, double or bfloat16 with contiguous rows.
bool has_latent_kernel(const at::Tensor& rows);

// Undefined angles in the following functions: no rotation.

// Rotates the rotary part of each head of q in place; direction -1 rotates back.
void rotate_heads_cpu(const at::Tensor& q, const model::RotaryAngles& angles, const LatentShape& shape,
                      double direction);

// Fills k and v.
void assemble_cpu(const at::Tensor& of_latent, const at::Tensor& shared_key,
                  const model::RotaryAngles& angles, const LatentShape& shape, const at::Tensor& k,
                  const at::Tensor& v);

// Fills the gradients of of_latent and shared_key from those of k and v.
void take_apart_cpu(const at::Tensor& dk, const at::Tensor& dv, const model::RotaryAngles& angles,
                    const LatentShape& shape, const at::Tensor& d_of_latent, const at::Tensor& d_shared_key);

}  // namespace heddle::decoder
