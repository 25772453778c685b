// LibTorch's flash attention with cumulative lengths (Dao 2023), for GPUs.
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/empty.h>

#include <string>

#include "heddle/base/error.h"
#include "lib/nn/attention/attend_varying.h"

namespace heddle::model {
namespace {

// Left and right of the last key that a query sees.
struct FlashWindow {
  std::optional<int64_t> left, right;
};

FlashWindow window_of(const VaryingLengths& of) {
  if (of.window == 0) return {};
  return {of.window - 1, 0};
}

void check_flash(const at::Tensor& q) {
  if (!q.is_cuda() || (q.scalar_type() != at::kBFloat16 && q.scalar_type() != at::kHalf))
    throw Error(ErrorCode::not_built, "model",
                "attention over documents and parts of sequences on " + q.device().str() +
                    " takes bfloat16 and float16, got " + c10::toString(q.scalar_type()),
                "set distributed.mp_policy.param_dtype: bfloat16, or dist_env.backend: gloo");
}

void refuse_on_gpu(const BlockedShape& shape) {
  AttentionOptions options;
  options.soft_cap = shape.soft_cap;
  options.value_dim = shape.value_dim;
  const std::string what = gpu_refusal(shape.head_dim, options);
  if (!what.empty())
    throw Error(ErrorCode::not_built, "model",
                "attention over documents and parts of sequences with " + what + " is built for the CPU only",
                "run on the CPU: dist_env.backend: gloo");
}

std::pair<at::Tensor, at::Tensor> flash_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                const VaryingLengths& of) {
  check_flash(q);
  const FlashWindow window = window_of(of);
  const auto all = at::_flash_attention_forward(q, k, v, of.cum_q, of.cum_k, of.max_q, of.max_k, 0.0,
                                                of.causal, false, of.scale, window.left, window.right);
  return {std::get<0>(all), std::get<1>(all)};
}

std::array<at::Tensor, 3> flash_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const at::Tensor& out,
                                         const at::Tensor& log_sums, const VaryingLengths& of) {
  check_flash(q);
  const FlashWindow window = window_of(of);
  // Without dropout the state of the generator is not read.
  const at::Tensor state = at::empty({2}, q.options().dtype(at::kUInt64)),
                   unused = at::empty({0}, q.options());
  const auto [d_q, d_k, d_v] = at::_flash_attention_backward(
      d_out.contiguous(), q, k, v, out, log_sums, of.cum_q, of.cum_k, of.max_q, of.max_k, 0.0, of.causal,
      state, unused, of.scale, window.left, window.right);
  return {d_q, d_k, d_v};
}

}  // namespace

const VaryingKernel& flash_kernel() {
  static constexpr VaryingKernel kFlash{flash_forward, flash_backward};
  return kFlash;
}

std::string gpu_refusal(int64_t head_dim, const AttentionOptions& options) {
  if (options.soft_cap > 0) return "a soft cap";
  if (options.value_dim > 0 && options.value_dim != head_dim) return "values of another width than keys";
  if (head_dim % 8 != 0 || head_dim > 256)
    return "heads of " + std::to_string(head_dim) + " (a multiple of 8 up to 256 is allowed)";
  return "";
}

void attend_ranges(const BlockedInputs& in, const BlockedShape& shape, const at::Tensor& out,
                   const at::Tensor& log_sums, bool onto) {
  if (in.q.is_cpu()) return attend_blocked_cpu(in, shape, out, log_sums, onto);
  refuse_on_gpu(shape);
  attend_varying(in, shape, out, log_sums, onto, flash_kernel());
}

void attend_ranges_backward(const BlockedInputs& in, const BlockedShape& shape, const at::Tensor& d_out,
                            const at::Tensor& out, const at::Tensor& log_sums, const BlockedGradients& into,
                            bool add) {
  if (in.q.is_cpu()) return attend_blocked_backward_cpu(in, shape, d_out, out, log_sums, into, add);
  refuse_on_gpu(shape);
  attend_varying_backward(in, shape, d_out, out, log_sums, into, add, flash_kernel());
}

}  // namespace heddle::model
