// Two products for each pair of a query and a key forward, five backward (Dao et al. 2022).
#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/sum.h>

#include <algorithm>

#include "heddle/nn/attention_layout.h"
#include "heddle/ops/compute_log.h"

namespace heddle::model {
namespace {

double bytes_of(const at::Tensor& x) {
  return static_cast<double>(x.numel()) * static_cast<double>(x.element_size());
}

// Pairs of one head and one row of `sequence` tokens. Documents are unknown on meta: each row counts as one.
double visible_pairs(int64_t sequence, bool causal, int64_t window) {
  const auto all = static_cast<double>(sequence);
  const auto seen = static_cast<double>(window > 0 ? std::min(window, sequence) : sequence);
  const double own_and_earlier = seen * (seen + 1) / 2 + (all - seen) * seen;
  return causal ? own_and_earlier : 2 * own_and_earlier - all;
}

}  // namespace

void record_attention(const BlockedInputs& in, const Heads& heads, Pass pass) {
  if (!records_operators()) return;
  const auto keys = static_cast<double>(heads.head_dim), values = static_cast<double>(heads.value_dim());
  const double of_head = in.seen.defined()
                             ? (in.seen.select(1, 1) - in.seen.select(1, 0)).clamp_min(0).sum().item<double>()
                             : visible_pairs(heads.sequence, heads.options.causal, heads.options.window) *
                                   static_cast<double>(heads.batch);
  const double pairs = of_head * static_cast<double>(in.q.size(1) / heads.head_dim);
  const double out = bytes_of(in.q) / keys * values,
               inputs = bytes_of(in.q) + bytes_of(in.k) + bytes_of(in.v);
  const bool forward = pass == Pass::forward;
  record_operator(forward ? "heddle::attention" : "heddle::attention_backward",
                  {pairs * (forward ? 2 * keys + 2 * values : 6 * keys + 4 * values),
                   forward ? inputs : inputs + 2 * out, forward ? out : inputs},
                  ProductShape{heads.batch * (in.q.size(1) / heads.head_dim), in.q.size(0) / heads.batch,
                               in.k.size(0) / heads.batch, heads.head_dim, in.q.scalar_type()});
}

}  // namespace heddle::model
