// Attention over ranges of keys by a kernel that takes cumulative lengths, as flash attention on GPUs does.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "heddle/nn/attention_layout.h"

namespace heddle::model {

// One call of the kernel: neighbouring queries and the keys that they see, piece after piece. Within a piece,
// query i of n sees keys up to i + keys - n (all: every query sees all), and at most `window` of them. No key
// is in two pieces, so gradients are added without atomics.
struct VaryingCall {
  bool causal = false;
  int64_t window = 0;                       // 0: none
  std::vector<int64_t> queries, keys;       // rows of the inputs
  std::vector<int32_t> cum_q{0}, cum_k{0};  // where pieces begin, and the end
  int64_t max_q = 0, max_k = 0;             // of a piece
};

// seen: int32 [queries, 2] on the CPU, as in BlockedInputs. A query that sees nothing is in no call.
HEDDLE_API std::vector<VaryingCall> varying_calls(const at::Tensor& seen);

// A call with its lengths on the device of the inputs.
struct VaryingLengths {
  at::Tensor cum_q, cum_k;  // int32
  int64_t max_q, max_k, window;
  bool causal;
};

struct DeviceCall {
  at::Tensor queries, keys;  // rows of the inputs; undefined: all of them, in their order
  VaryingLengths lengths;
};

// varying_calls() on the device of `like`; keys: the number of rows of keys.
HEDDLE_API std::vector<DeviceCall> device_calls(const at::Tensor& seen, int64_t keys, const at::Tensor& like);

// q, k, v and out [tokens, heads, dim]; log_sums float [heads, tokens].
struct VaryingKernel {
  std::pair<at::Tensor, at::Tensor> (*forward)(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                               const VaryingLengths& lengths, double scale);
  std::array<at::Tensor, 3> (*backward)(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const at::Tensor& out,
                                        const at::Tensor& log_sums, const VaryingLengths& lengths,
                                        double scale);
};

// Compute attend_blocked_cpu() and attend_blocked_backward_cpu() on any device, without soft caps. The calls
// stand for in.seen, which is not read.
HEDDLE_API void attend_varying(const BlockedInputs& in, const std::vector<DeviceCall>& calls,
                               const BlockedShape& shape, const at::Tensor& out, const at::Tensor& log_sums,
                               bool onto, const VaryingKernel& kernel);
HEDDLE_API void attend_varying_backward(const BlockedInputs& in, const std::vector<DeviceCall>& calls,
                                        const BlockedShape& shape, const at::Tensor& d_out,
                                        const at::Tensor& out, const at::Tensor& log_sums,
                                        const BlockedGradients& into, bool add, const VaryingKernel& kernel);

// LibTorch's flash attention (Dao 2023). Heads are filled up with zeros to widths that it takes.
const VaryingKernel& flash_kernel();
inline constexpr int64_t kFlashStep = 8;  // of the widths that it takes
bool has_flash_kernel(const at::Tensor& q, const BlockedShape& shape);

}  // namespace heddle::model
