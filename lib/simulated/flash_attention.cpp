// LibTorch's flash attention on simulated GPUs: one launch forward and one backward, of products in float.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <torch/library.h>

#include <cmath>
#include <optional>
#include <tuple>

#include "lib/simulated/alias.h"
#include "lib/simulated/device_ops.h"

namespace heddle::simulated {
namespace {

using Optional = std::optional<at::Tensor>;
using Window = std::optional<c10::SymInt>;

struct MaskForm {
  double scale = 1;
  bool causal = false;
  int64_t left = -1, right = -1;  // -1: no end

  // 0 where a query sees a key, else -infinity. The last query sees the last key.
  at::Tensor mask(int64_t queries, int64_t keys) const {
    const at::Tensor at = at::arange(queries).unsqueeze(1) + (keys - queries),
                     key = at::arange(keys).unsqueeze(0);
    at::Tensor hidden = key > keys;  // nothing
    const int64_t ahead = causal ? 0 : right;
    if (ahead >= 0) hidden = hidden | (key > at + ahead);
    if (left >= 0) hidden = hidden | (key < at - left);
    return hidden.to(at::kFloat).masked_fill(hidden, -INFINITY);
  }
};

// [rows, heads, width] as float [heads, rows, width], each key's head for all its queries' heads.
at::Tensor heads_of(const at::Tensor& x, int64_t heads) {
  const at::Tensor wide = x.to(at::kFloat).transpose(0, 1);
  return x.size(1) == heads ? wide : wide.repeat_interleave(heads / x.size(1), 0);
}

at::Tensor scores_of(const at::Tensor& q, const at::Tensor& k, const MaskForm& form) {
  return at::matmul(q, k.transpose(1, 2)) * form.scale + form.mask(q.size(1), k.size(1));
}

// One sequence: out [rows, heads, width], log_sums [heads, rows].
void forward_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const MaskForm& form,
                const at::Tensor& out, const at::Tensor& log_sums) {
  const int64_t heads = q.size(1);
  const at::Tensor scores = scores_of(heads_of(q, heads), heads_of(k, heads), form);
  const at::Tensor sums = at::logsumexp(scores, 2);
  log_sums.copy_(sums);
  out.copy_(at::matmul((scores - sums.unsqueeze(2)).exp(), heads_of(v, heads)).transpose(0, 1));
}

at::Tensor summed(const at::Tensor& of_heads, const at::Tensor& like) {
  const int64_t shared = of_heads.size(0) / like.size(1);
  return of_heads.unflatten(0, {like.size(1), shared}).sum(1).transpose(0, 1);
}

struct Sequence {
  at::Tensor d_out, q, k, v, out, log_sums, d_q, d_k, d_v;
};

void backward_of(const Sequence& of, const MaskForm& form) {
  const int64_t heads = of.q.size(1);
  const at::Tensor q = heads_of(of.q, heads), k = heads_of(of.k, heads), v = heads_of(of.v, heads),
                   d_out = heads_of(of.d_out, heads), out = heads_of(of.out, heads);
  const at::Tensor weights = (scores_of(q, k, form) - of.log_sums.unsqueeze(2)).exp();
  const at::Tensor d_weights = at::matmul(d_out, v.transpose(1, 2));
  const at::Tensor d_scores = weights * (d_weights - (d_out * out).sum(2, true)) * form.scale;
  of.d_q.copy_(at::matmul(d_scores, k).transpose(0, 1));
  of.d_k.copy_(summed(at::matmul(d_scores.transpose(1, 2), q), of.k));
  of.d_v.copy_(summed(at::matmul(weights.transpose(1, 2), d_out), of.v));
}

// Calls `one` for each sequence with its rows of queries and of keys: of a batch, or between cumulative
// lengths.
using Seen = std::vector<at::Tensor>;
void for_each(const at::Tensor& cum_q, const at::Tensor& cum_k,
              const std::function<void(std::pair<int64_t, int64_t>, std::pair<int64_t, int64_t>)>& one) {
  const auto* q = cum_q.const_data_ptr<int32_t>();
  const auto* k = cum_k.const_data_ptr<int32_t>();
  for (int64_t i = 0; i + 1 < cum_q.numel(); ++i)
    if (q[i + 1] > q[i]) one({q[i], q[i + 1] - q[i]}, {k[i], k[i + 1] - k[i]});
}

at::Tensor rows(const at::Tensor& x, std::pair<int64_t, int64_t> of) {
  return x.narrow(0, of.first, of.second);
}

void run_forward(const Seen& of, const MaskForm& form) {
  if (!of[5].defined()) {
    for (int64_t i = 0; i < of[0].size(0); ++i)
      forward_of(of[0][i], of[1][i], of[2][i], form, of[3][i], of[4][i]);
    return;
  }
  for_each(of[5], of[6], [&](auto q, auto k) {
    forward_of(rows(of[0], q), rows(of[1], k), rows(of[2], k), form, rows(of[3], q),
               of[4].narrow(1, q.first, q.second));
  });
}

void run_backward(const Seen& of, const MaskForm& form) {
  if (!of[9].defined()) {
    for (int64_t i = 0; i < of[0].size(0); ++i)
      backward_of({of[0][i], of[1][i], of[2][i], of[3][i], of[4][i], of[5][i], of[6][i], of[7][i], of[8][i]},
                  form);
    return;
  }
  for (const size_t gradient : {6, 7, 8}) of[gradient].zero_();
  for_each(of[9], of[10], [&](auto q, auto k) {
    backward_of({rows(of[0], q), rows(of[1], q), rows(of[2], k), rows(of[3], k), rows(of[4], q),
                 of[5].narrow(1, q.first, q.second), rows(of[6], q), rows(of[7], k), rows(of[8], k)},
                form);
  });
}

MaskForm form_of(const at::Tensor& q, bool causal, std::optional<double> scale, const Window& left,
                 const Window& right) {
  const auto end = [](const Window& of) { return of ? of->expect_int() : -1; };
  return {scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1)))), causal, end(left), end(right)};
}

at::Tensor given(const Optional& x) {
  return x.value_or(at::Tensor());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> flash_forward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional& cum_q,
    const Optional& cum_k, c10::SymInt, c10::SymInt, double, bool causal, bool, std::optional<double> scale,
    Window left, Window right, const Optional&, const Optional&) {
  const at::TensorOptions wide = q.options().dtype(at::kFloat);
  const at::Tensor out = at::empty(q.sizes(), q.options());
  const at::Tensor log_sums =
      cum_q ? at::empty({q.size(1), q.size(0)}, wide) : at::empty({q.size(0), q.size(2), q.size(1)}, wide);
  launch_kernel("flash_attention",
                {{q}, {k}, {v}, {out, true}, {log_sums, true}, {given(cum_q)}, {given(cum_k)}},
                [form = form_of(q, causal, scale, left, right)](const Seen& of) { run_forward(of, form); });
  return {out, log_sums, {}, {}, {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(
    const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& log_sums, const at::Tensor& cum_q, const at::Tensor& cum_k,
    c10::SymInt, c10::SymInt, double, bool causal, const at::Tensor&, const at::Tensor&,
    std::optional<double> scale, Window left, Window right) {
  const at::Tensor d_q = at::empty(q.sizes(), q.options()), d_k = at::empty(k.sizes(), k.options()),
                   d_v = at::empty(v.sizes(), v.options());
  launch_kernel(
      "flash_attention_backward",
      {{d_out}, {q}, {k}, {v}, {out}, {log_sums}, {d_q, true}, {d_k, true}, {d_v, true}, {cum_q}, {cum_k}},
      [form = form_of(q, causal, scale, left, right)](const Seen& of) { run_backward(of, form); });
  return {d_q, d_k, d_v};
}

// Chooses as LibTorch does on a GPU: flash attention in 16 bits, else products.
int64_t choose_attention(const at::Tensor& q, const at::Tensor&, const at::Tensor&, const Optional&, double,
                         bool, std::optional<double>, bool) {
  const bool narrow = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  return static_cast<int64_t>(narrow ? sdp::SDPBackend::flash_attention : sdp::SDPBackend::math);
}

const bool attention_registered = [] {
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention);
  return true;
}();

}  // namespace
}  // namespace heddle::simulated

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_flash_attention_forward", TORCH_FN(heddle::simulated::flash_forward));
  library.impl("_fused_sdp_choice", TORCH_FN(heddle::simulated::choose_attention));  // launches nothing
  library.impl("_flash_attention_backward", TORCH_FN(heddle::simulated::flash_backward));
}
