// Each part is LibTorch's flash attention on the CPU.
#include "pieces.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/zeros.h>

#include <tuple>
#include <utility>

namespace heddle::context {
namespace {

constexpr int kTokens = 2;  // the dim of tokens in [rows, heads, tokens, head_dim]

// Sums of parts are in fp32 at least.
at::ScalarType wide(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor seen_by(const at::Tensor& x, const Sight& sight) {
  return x.narrow(kTokens, sight.first_query, sight.queries);
}

struct PartOutput {
  at::Tensor out, log_sums;
};

// LibTorch has no meta kernel of the flash attention: only the shapes are made.
PartOutput attend_part(const at::Tensor& queries, const KeysValues& seen, const Sight& sight) {
  if (queries.is_meta())
    return {at::empty_like(queries), at::empty(queries.sizes().slice(0, kTokens + 1),
                                               queries.options().dtype(wide(queries.scalar_type())))};
  auto [out, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
      queries, seen.keys.narrow(kTokens, 0, sight.keys), seen.values.narrow(kTokens, 0, sight.keys), 0.0,
      sight.causal);
  return {std::move(out), std::move(log_sums)};
}

// The share of a part in the whole, for every element of its output.
at::Tensor share(const at::Tensor& part, const at::Tensor& whole) {
  return (part - whole).exp_().unsqueeze(-1);
}

}  // namespace

at::Tensor by_head(const at::Tensor& x, const model::Heads& heads) {
  return x.view({heads.batch, heads.sequence, -1, heads.head_dim}).transpose(1, 2);
}

at::Tensor by_token(const at::Tensor& x, at::IntArrayRef shape) {
  return x.transpose(1, 2).reshape(shape);
}

Sight sight(int rank, int other, int64_t tokens) {
  if (other == rank) return {0, tokens, tokens, true};
  if (other < rank) return {0, tokens, tokens / 2, false};
  return {tokens / 2, tokens / 2, tokens, false};
}

Joined::Joined(const at::Tensor& queries) : queries_(queries) {}

void Joined::add(const KeysValues& seen, const Sight& sight) {
  auto [part, log_sums] = attend_part(seen_by(queries_, sight), seen, sight);
  part = part.to(wide(part.scalar_type()));
  if (!out_.defined()) {  // the rank's own keys come first, and every query sees some of them
    out_ = std::move(part);
    log_sums_ = std::move(log_sums);
    return;
  }
  at::Tensor sums = seen_by(log_sums_, sight), out = seen_by(out_, sight);
  const at::Tensor joined = at::logaddexp(sums, log_sums);
  out.mul_(share(sums, joined)).add_(part.mul_(share(log_sums, joined)));
  sums.copy_(joined);
}

void AttentionGradient::add(const KeysValues& seen, const Sight& sight, at::Tensor& d_queries,
                            KeysValues& d_seen) const {
  if (d_queries.is_meta()) return;  // added to sums of shapes that stay
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      seen_by(d_out, sight), seen_by(queries, sight), seen.keys.narrow(kTokens, 0, sight.keys),
      seen.values.narrow(kTokens, 0, sight.keys), seen_by(out, sight), seen_by(log_sums, sight), 0.0,
      sight.causal);
  seen_by(d_queries, sight).add_(dq);
  d_seen.keys.narrow(kTokens, 0, sight.keys).add_(dk);
  d_seen.values.narrow(kTokens, 0, sight.keys).add_(dv);
}

}  // namespace heddle::context
