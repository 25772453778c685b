// Accumulation of attention with attend_ranges(), one rank's keys at a time.
#include "joined.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "heddle/nn/attention_layout.h"

namespace heddle::context {
namespace {

struct Halves {
  at::Tensor keys, values;
};

Halves halves_of(const at::Tensor& both, const model::Heads& heads) {
  const int64_t width = both.size(1) / (heads.head_dim + heads.value_dim()) * heads.head_dim;
  return {both.narrow(1, 0, width), both.narrow(1, width, both.size(1) - width)};
}

model::BlockedInputs inputs_of(const at::Tensor& queries, const at::Tensor& seen, const Local& local,
                               int other) {
  const Halves halves = halves_of(seen, local.heads);
  return {queries, halves.keys, halves.values,
          local.rows->visible_keys(local.rank, other, local.heads.options)};
}

}  // namespace

at::Tensor side_by_side(const at::Tensor& keys, const at::Tensor& values) {
  return at::cat({keys, values}, 1);
}

Joined::Joined(const at::Tensor& queries, const Local& local) : queries_(queries), local_(local) {
  const int64_t heads = queries.size(1) / local.heads.head_dim;
  const at::TensorOptions sums =
      queries.options().dtype(queries.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  out_ = at::empty({queries.size(0), heads * local.heads.value_dim()}, sums);
  log_sums_ = at::empty({heads, queries.size(0)}, sums);
}

void Joined::add(const at::Tensor& seen, int other) {
  const model::BlockedInputs in = inputs_of(queries_, seen, local_, other);
  if (queries_.is_meta()) return model::record_attention(in, local_.heads, model::Pass::forward);
  model::attend_ranges(in, model::blocked_shape(local_.heads), out_, log_sums_, onto_);
  onto_ = true;
}

void Joined::finish() {
  if (!queries_.is_meta() && local_.heads.sinks.defined())
    model::add_sinks(local_.heads.sinks, out_, log_sums_);
}

void AttentionGradient::add(const at::Tensor& seen, int other, const at::Tensor& d_seen) const {
  const model::BlockedInputs in = inputs_of(queries, seen, local, other);
  if (queries.is_meta()) return model::record_attention(in, local.heads, model::Pass::backward);
  const Halves into = halves_of(d_seen, local.heads);
  model::attend_ranges_backward(in, model::blocked_shape(local.heads), d_out, out, log_sums,
                                {d_queries, into.keys, into.values}, true);
}

}  // namespace heddle::context
