// LibTorch's flash attention with cumulative lengths (Dao 2023), and the choice between it and products.
#include "lib/nn/attention/attend_device.h"

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "lib/nn/attention/attend_composite.h"
#include "lib/nn/attention/attend_varying.h"

namespace heddle::model {
namespace {

constexpr int64_t kWidest = 256;  // of heads that the kernel takes

// Left and right of the last key that a query sees.
struct FlashWindow {
  std::optional<int64_t> left, right;
};

FlashWindow window_of(const VaryingLengths& of) {
  if (of.window == 0) return {};
  return {of.window - 1, 0};
}

int64_t padded_width(int64_t head_dim, int64_t value_dim) {
  return (std::max(head_dim, value_dim) + kFlashStep - 1) / kFlashStep * kFlashStep;
}

at::Tensor padded(const at::Tensor& x, int64_t width) {
  return x.size(-1) == width ? x : at::constant_pad_nd(x, {0, width - x.size(-1)});
}

at::Tensor cut(const at::Tensor& x, int64_t width) {
  return x.size(-1) == width ? x : x.narrow(-1, 0, width);
}

std::pair<at::Tensor, at::Tensor> flash_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                const VaryingLengths& of, double scale) {
  const FlashWindow window = window_of(of);
  const int64_t width = padded_width(q.size(2), v.size(2));
  const auto all = at::_flash_attention_forward(padded(q, width), padded(k, width), padded(v, width),
                                                of.cum_q, of.cum_k, of.max_q, of.max_k, 0.0, of.causal, false,
                                                scale, window.left, window.right);
  return {cut(std::get<0>(all), v.size(2)), std::get<1>(all)};
}

std::array<at::Tensor, 3> flash_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const at::Tensor& out,
                                         const at::Tensor& log_sums, const VaryingLengths& of, double scale) {
  const FlashWindow window = window_of(of);
  const int64_t width = padded_width(q.size(2), v.size(2));
  // Without dropout the state of the generator is not read.
  const at::Tensor state = at::empty({2}, q.options().dtype(at::kUInt64)),
                   unused = at::empty({0}, q.options());
  const auto [d_q, d_k, d_v] = at::_flash_attention_backward(
      padded(d_out, width).contiguous(), padded(q, width), padded(k, width), padded(v, width),
      padded(out, width), log_sums, of.cum_q, of.cum_k, of.max_q, of.max_k, 0.0, of.causal, state, unused,
      scale, window.left, window.right);
  return {cut(d_q, q.size(2)), cut(d_k, k.size(2)), cut(d_v, v.size(2))};
}

}  // namespace

const VaryingKernel& flash_kernel() {
  static constexpr VaryingKernel kFlash{flash_forward, flash_backward};
  return kFlash;
}

bool has_flash_kernel(const at::Tensor& q, const BlockedShape& shape) {
  return q.is_cuda() && (q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf) &&
         shape.soft_cap == 0 && std::max(shape.head_dim, shape.value_dim) <= kWidest;
}

void attend_on_device(const BlockedInputs& in, const DeviceRanges& ranges, const BlockedShape& shape,
                      const at::Tensor& out, const at::Tensor& log_sums, bool onto) {
  if (has_flash_kernel(in.q, shape))
    attend_varying(in, ranges.calls, shape, out, log_sums, onto, flash_kernel());
  else
    attend_composite(in, ranges, shape, out, log_sums, onto);
}

void attend_on_device_backward(const BlockedInputs& in, const DeviceRanges& ranges, const BlockedShape& shape,
                               const at::Tensor& d_out, const at::Tensor& out, const at::Tensor& log_sums,
                               const BlockedGradients& into, bool add) {
  if (has_flash_kernel(in.q, shape))
    attend_varying_backward(in, ranges.calls, shape, d_out, out, log_sums, into, add, flash_kernel());
  else
    attend_composite_backward(in, ranges, shape, d_out, out, log_sums, into, add);
}

void attend_ranges(const BlockedInputs& in, const BlockedShape& shape, const at::Tensor& out,
                   const at::Tensor& log_sums, bool onto) {
  if (in.q.is_cpu()) return attend_blocked_cpu(in, shape, out, log_sums, onto);
  attend_on_device(in, device_ranges(in.seen, in.k.size(0), in.q, shape), shape, out, log_sums, onto);
}

void attend_ranges_backward(const BlockedInputs& in, const BlockedShape& shape, const at::Tensor& d_out,
                            const at::Tensor& out, const at::Tensor& log_sums, const BlockedGradients& into,
                            bool add) {
  if (in.q.is_cpu()) return attend_blocked_backward_cpu(in, shape, d_out, out, log_sums, into, add);
  attend_on_device_backward(in, device_ranges(in.seen, in.k.size(0), in.q, shape), shape, d_out, out,
                            log_sums, into, add);
}

}  // namespace heddle::model
