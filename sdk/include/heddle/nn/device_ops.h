// Kernels of a device that compute in one launch what LibTorch computes in several. The device sets them when
// it starts; the layers use them below their autograd nodes, so saving, recomputation and autocast are the
// same with and without.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "heddle/base/export.h"
#include "heddle/nn/rotary.h"

namespace heddle::model {

struct ExpertActivation;  // heddle/nn/experts.h

// An empty member: the device has no such kernel. A kernel returns false, and has done nothing, where it does
// not take the tensors (their dtype, say); then LibTorch's operators compute. Sums are float.
struct DeviceOps {
  // y = x * root * weight with root = 1 / sqrt(mean(x^2) + eps) of each row; plus_one: times weight + 1
  // (Gemma). x, y [rows, width], weight [width], roots float [rows, 1].
  bool (*rms_norm)(const at::Tensor& x, const at::Tensor& weight, double eps, bool plus_one,
                   const at::Tensor& y, const at::Tensor& roots) = nullptr;
  // dx [rows, width] and dw [width]; undefined: not wanted.
  bool (*rms_norm_backward)(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& roots, bool plus_one, const at::Tensor& dx,
                            const at::Tensor& dw) = nullptr;
  // y = silu(gate) * up, all [rows, width]; rows of gate and up may lie apart.
  bool (*swiglu)(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& y) = nullptr;
  // d_both [rows, 2 * width]: the gradients of gate and up, side by side.
  bool (*swiglu_backward)(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                          const at::Tensor& d_both) = nullptr;
  // activate(): y = activation(hidden) * weights of the rows. hidden [rows, columns * width], weights float
  // [rows], y [rows, width], all contiguous.
  bool (*expert_activation)(const ExpertActivation& how, const at::Tensor& hidden, const at::Tensor& weights,
                            const at::Tensor& y) = nullptr;
  // activate_backward(): the gradients of hidden and weights, and y again.
  bool (*expert_activation_backward)(const ExpertActivation& how, const at::Tensor& dy,
                                     const at::Tensor& hidden, const at::Tensor& weights,
                                     const at::Tensor& d_hidden, const at::Tensor& d_weights,
                                     const at::Tensor& y) = nullptr;
  // out [tokens, width]: the sum over each token's rows, at places int64 [tokens * k] of rows [rows, width];
  // -1: no row.
  bool (*combine_rows)(const at::Tensor& rows, const at::Tensor& places, const at::Tensor& out) = nullptr;
  // Turns heads of x [tokens, heads * head_dim] in place; rows may lie apart. direction: 1, or -1 for the way
  // back.
  bool (*rotate)(const at::Tensor& x, const RotaryAngles& angles, double direction) = nullptr;
  // Cross entropy of logits [rows, vocabulary]: losses float [rows] of labels int64 [rows, 1], times counted
  // float [rows, 1]. with_gradient: the logits become the gradient of the sum of the losses. soft_cap: as in
  // TokenLoss.
  bool (*token_loss)(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& counted,
                     double soft_cap, bool with_gradient, const at::Tensor& losses) = nullptr;
  // x *= factor, a float on the device.
  bool (*scale)(const at::Tensor& x, const at::Tensor& factor) = nullptr;
  // x [rows, columns] times scale = the largest number of the 8-bit float type / max |x|, rounded: value
  // [rows, columns], `across` [columns, rows] (undefined: not wanted), and inverse, a float: 1 / scale.
  bool (*round_fp8)(const at::Tensor& x, const at::Tensor& value, const at::Tensor& across,
                    const at::Tensor& inverse) = nullptr;
  // Products of groups of rows [begins[g], begins[g + 1]), which are on the host: a [rows, k] with the
  // matrices b [groups, k, n] gives [rows, n]; a [m, rows] with b [rows, n] gives [groups, m, n], in
  // which what belongs to a group without rows is not defined. Undefined: not taken.
  at::Tensor (*grouped_product)(const at::Tensor& a, const at::Tensor& b,
                                std::span<const int64_t> begins) = nullptr;
  // sum += a b, with a sum in float of 16-bit numbers.
  bool (*add_product)(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) = nullptr;
};

// Those of the process's device; all empty before one is started, and on the CPU.
HEDDLE_API const DeviceOps& device_ops();
HEDDLE_API void set_device_ops(const DeviceOps& ops);

// A tensor on a device. The host does not wait for a GPU: the copy of a tensor of the host is from pinned
// memory.
HEDDLE_API at::Tensor sent_to(const at::Tensor& tensor, at::Device device);

// While it lives, layers of this thread compute on meta as on a device with every kernel above: the same
// tensors are made and kept, and each kernel records its cost (heddle/ops/compute_log.h).
class HEDDLE_API MetaKernels {
 public:
  MetaKernels();
  ~MetaKernels();
  MetaKernels(const MetaKernels&) = delete;
  MetaKernels& operator=(const MetaKernels&) = delete;
};
// Those for meta tensors of this thread; all empty but while MetaKernels lives.
HEDDLE_API const DeviceOps& meta_ops();

// The kernel of a member for x: device_kernel(&DeviceOps::swiglu, gate). Null where x is on the CPU, and
// where the device has none.
template <class Kernel>
Kernel device_kernel(Kernel DeviceOps::*member, const at::Tensor& x) {
  if (x.is_cpu()) return nullptr;
  return (x.is_meta() ? meta_ops() : device_ops()).*member;
}

}  // namespace heddle::model
