// LibTorch's choice for scaled_dot_product_attention, called below autograd so that our node saves what it
// needs.
#include "lib/nn/attention/attend_fused.h"

#include <ATen/ops/_cudnn_attention_backward.h>
#include <ATen/ops/_cudnn_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/empty.h>

#include "lib/nn/attention/attend_varying.h"

namespace heddle::model {
namespace {

constexpr int64_t kFlashChoice = 1, kCudnnChoice = 3;  // of at::SDPBackend

at::Tensor by_row(const at::Tensor& x, const Heads& heads, int64_t dim) {
  return x.view({heads.batch, heads.sequence, -1, dim});
}

}  // namespace

Fused fused_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Heads& heads,
                   const at::Tensor& documents) {
  const AttentionOptions& options = heads.options;
  const bool is_windowed = options.window > 0 && options.window < heads.sequence;
  if (!q.is_cuda() || documents.defined() || is_windowed || heads.sinks.defined()) return Fused::none;
  // LibTorch's choice counts on heads that are filled up to a width that the kernels take.
  const bool has_width = heads.value_dim() == heads.head_dim && heads.head_dim % kFlashStep == 0;
  if (!has_width || !has_flash_kernel(q, blocked_shape(heads))) return Fused::none;
  const bool grouped = q.size(1) != k.size(1);
  const int64_t choice = at::_fused_sdp_choice(
      by_head(q, heads, heads.head_dim), by_head(k, heads, heads.head_dim), by_head(v, heads, heads.head_dim),
      {}, 0.0, options.causal, heads.scale(), grouped);
  return choice == kCudnnChoice ? Fused::cudnn : choice == kFlashChoice ? Fused::flash : Fused::none;
}

FusedResult attend_fused(Fused kernel, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const Heads& heads) {
  const int64_t dim = heads.head_dim, length = heads.sequence;
  if (kernel == Fused::flash) {
    const auto all =
        at::_flash_attention_forward(by_row(q, heads, dim), by_row(k, heads, dim), by_row(v, heads, dim), {},
                                     {}, length, length, 0.0, heads.options.causal, false, heads.scale());
    return {std::get<0>(all).reshape({q.size(0), -1}), std::get<1>(all)};
  }
  const auto all = at::_cudnn_attention_forward(by_head(q, heads, dim), by_head(k, heads, dim),
                                                by_head(v, heads, dim), {}, {}, {}, length, length, true, 0.0,
                                                heads.options.causal, false, heads.scale());
  return {by_token(std::get<0>(all), {q.size(0), q.size(1)}), std::get<1>(all)};
}

std::array<at::Tensor, 3> attend_fused_backward(Fused kernel, const at::Tensor& d_out, const at::Tensor& q,
                                                const at::Tensor& k, const at::Tensor& v,
                                                const FusedResult& result, const Heads& heads) {
  const int64_t dim = heads.head_dim, length = heads.sequence;
  // Without dropout the state of the generator is not read.
  if (kernel == Fused::flash) {
    const at::Tensor state = at::empty({2}, q.options().dtype(at::kUInt64)),
                     unused = at::empty({0}, q.options());
    const auto [d_q, d_k, d_v] = at::_flash_attention_backward(
        by_row(d_out, heads, dim), by_row(q, heads, dim), by_row(k, heads, dim), by_row(v, heads, dim),
        by_row(result.out, heads, dim), result.log_sums, {}, {}, length, length, 0.0, heads.options.causal,
        state, unused, heads.scale());
    return {d_q.reshape(q.sizes()), d_k.reshape(k.sizes()), d_v.reshape(v.sizes())};
  }
  const at::Tensor state = at::empty({1}, q.options().dtype(at::kLong));
  const auto [d_q, d_k, d_v] = at::_cudnn_attention_backward(
      by_head(d_out, heads, dim), by_head(q, heads, dim), by_head(k, heads, dim), by_head(v, heads, dim),
      by_head(result.out, heads, dim), result.log_sums, state, state, {}, {}, {}, length, length, 0.0,
      heads.options.causal, heads.scale());
  return {by_token(d_q, q.sizes()), by_token(d_k, k.sizes()), by_token(d_v, v.sizes())};
}

}  // namespace heddle::model
