// Fused kernels of a device, which replace several LibTorch operators. The device sets them when it starts.
// Layers call them below their autograd nodes, so saving, recomputation and autocast do not depend on them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "heddle/base/export.h"
#include "heddle/nn/rotary.h"

namespace heddle::model {

struct ExpertActivation;  // heddle/nn/experts.h

// The kernels of a device; null if it does not have one. A kernel returns false and does nothing for tensors
// that it does not support, for example because of their dtype; then LibTorch operators are used. Kernels
// accumulate in float.
struct DeviceOps {
  // y = x * root * weight with root = 1 / sqrt(mean(x^2) + eps) per row. plus_one: weight + 1 in place of
  // weight (Gemma). x, y [rows, width], weight [width], roots float [rows, 1].
  bool (*rms_norm)(const at::Tensor& x, const at::Tensor& weight, double eps, bool plus_one,
                   const at::Tensor& y, const at::Tensor& roots) = nullptr;
  // dx [rows, width] and dw [width]; undefined if not needed.
  bool (*rms_norm_backward)(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& roots, bool plus_one, const at::Tensor& dx,
                            const at::Tensor& dw) = nullptr;
  // y = silu(gate) * up, all [rows, width]. Rows of gate and up may be strided.
  bool (*swiglu)(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& y) = nullptr;
  // d_both [rows, 2 * width]: the gradients of gate and up, concatenated.
  bool (*swiglu_backward)(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                          const at::Tensor& d_both) = nullptr;
  // activate(): y = activation(hidden) * weights. hidden [rows, columns * width], weights float [rows], y
  // [rows, width], all contiguous.
  bool (*expert_activation)(const ExpertActivation& how, const at::Tensor& hidden, const at::Tensor& weights,
                            const at::Tensor& y) = nullptr;
  // activate_backward(): the gradients of hidden and weights, and the recomputed y.
  bool (*expert_activation_backward)(const ExpertActivation& how, const at::Tensor& dy,
                                     const at::Tensor& hidden, const at::Tensor& weights,
                                     const at::Tensor& d_hidden, const at::Tensor& d_weights,
                                     const at::Tensor& y) = nullptr;
  // out [tokens, width]: the sum of each token's rows of rows [rows, width]. places int64 [tokens * k] are
  // row indices; -1: no row.
  bool (*combine_rows)(const at::Tensor& rows, const at::Tensor& places, const at::Tensor& out) = nullptr;
  // Rotates the heads of x [tokens, heads * head_dim] in place. Rows may be strided. direction: 1, or -1 for
  // the inverse.
  bool (*rotate)(const at::Tensor& x, const RotaryAngles& angles, double direction) = nullptr;
  // Cross entropy of logits [rows, vocabulary] with labels int64 [rows, 1]: losses float [rows], multiplied
  // by counted float [rows, 1]. with_gradient: overwrites the logits with the gradient of the sum of the
  // losses. soft_cap: see TokenLoss.
  bool (*token_loss)(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& counted,
                     double soft_cap, bool with_gradient, const at::Tensor& losses) = nullptr;
  // x *= factor, where factor is a float on the device.
  bool (*scale)(const at::Tensor& x, const at::Tensor& factor) = nullptr;
  // Quantizes x [rows, columns] to fp8 with scale = (maximum of the dtype) / max |x|. Writes value [rows,
  // columns], `across` [columns, rows] (undefined if not needed), and inverse, the float 1 / scale.
  bool (*round_fp8)(const at::Tensor& x, const at::Tensor& value, const at::Tensor& across,
                    const at::Tensor& inverse) = nullptr;
  // Grouped matrix products over rows [begins[g], begins[g + 1]); begins is on the host. a [rows, k] times b
  // [groups, k, n] gives [rows, n]. a [m, rows] times b [rows, n] gives [groups, m, n], in which a group
  // without rows has undefined values. Returns an undefined tensor if not supported.
  at::Tensor (*grouped_product)(const at::Tensor& a, const at::Tensor& b,
                                std::span<const int64_t> begins) = nullptr;
  // sum += a b, with sum in float and a, b in 16 bits.
  bool (*add_product)(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) = nullptr;
};

// Return and set the kernels of the process's device. All are null on the CPU and before a device is started.
HEDDLE_API const DeviceOps& device_ops();
HEDDLE_API void set_device_ops(const DeviceOps& ops);

// Returns the tensor on a device. The host does not wait for a GPU: a host tensor is copied from pinned
// memory.
HEDDLE_API at::Tensor sent_to(const at::Tensor& tensor, at::Device device);

// A scope in which layers of this thread compute on meta as on a device with all kernels of DeviceOps: they
// create and save the same tensors, and each kernel records its cost (heddle/ops/compute_log.h).
class HEDDLE_API MetaKernels {
 public:
  MetaKernels();
  ~MetaKernels();
  MetaKernels(const MetaKernels&) = delete;
  MetaKernels& operator=(const MetaKernels&) = delete;
};
// Returns the kernels for meta tensors of this thread. All are null outside of MetaKernels.
HEDDLE_API const DeviceOps& meta_ops();

// Returns the kernel of a member for the device of x, such as device_kernel(&DeviceOps::swiglu, gate). null
// if x is on the CPU or the device has no such kernel.
template <class Kernel>
Kernel device_kernel(Kernel DeviceOps::*member, const at::Tensor& x) {
  if (x.is_cpu()) return nullptr;
  return (x.is_meta() ? meta_ops() : device_ops()).*member;
}

}  // namespace heddle::model
