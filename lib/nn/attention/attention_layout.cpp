// Views by head, ranges of visible keys, and sinks.
#include "heddle/nn/attention_layout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logaddexp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "heddle/base/error.h"
#include "heddle/model/autocast.h"
#include "heddle/model/autograd_node.h"

namespace heddle::model {
namespace {

// The ranges of the tokens of one document [begin, end).
void see_document(int32_t begin, int32_t end, const AttentionOptions& options, int32_t* to) {
  const int64_t window = options.window > 0 ? options.window : std::numeric_limits<int32_t>::max();
  for (int64_t token = begin; token < end; ++token, to += 2) {
    to[0] = static_cast<int32_t>(std::max<int64_t>(begin, token - window + 1));
    to[1] = options.causal ? static_cast<int32_t>(token + 1)
                           : static_cast<int32_t>(std::min<int64_t>(end, token + window));
  }
}

// [heads, tokens] for [tokens, heads, value_dim].
at::Tensor for_each_value(const at::Tensor& of_heads) {
  return of_heads.t().unsqueeze(-1);
}

at::Tensor heads_of(const at::Tensor& x, const at::Tensor& log_sums) {
  return x.view({x.size(0), log_sums.size(0), -1});
}

}  // namespace

double Heads::scale() const {
  return options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(head_dim));
}

at::Tensor by_head(const at::Tensor& x, const Heads& heads, int64_t dim) {
  return x.view({heads.batch, heads.sequence, -1, dim}).transpose(1, 2);
}

at::Tensor by_token(const at::Tensor& x, at::IntArrayRef shape) {
  return x.transpose(1, 2).reshape(shape);
}

at::Tensor under_autocast(const at::Tensor& x) {
  const Autocast* autocast = Autocast::active();
  if (autocast == nullptr) [[likely]]
    return x;
  const BelowAutograd below;
  return autocast->value(x);
}

BlockedShape blocked_shape(const Heads& heads) {
  return {heads.head_dim, heads.value_dim(), heads.scale(), heads.options.soft_cap};
}

at::Tensor visible_keys(const Heads& heads, const at::Tensor& documents) {
  const int64_t tokens = heads.batch * heads.sequence;
  at::Tensor seen = at::empty({tokens, 2}, at::kInt);
  int32_t* const to = seen.mutable_data_ptr<int32_t>();
  const auto document = [&](int64_t begin, int64_t end) {
    see_document(static_cast<int32_t>(begin), static_cast<int32_t>(end), heads.options, to + 2 * begin);
  };
  if (!documents.defined()) {
    for (int64_t row = 0; row < heads.batch; ++row)
      document(row * heads.sequence, (row + 1) * heads.sequence);
    return seen;
  }
  const at::Tensor host = documents.to(at::kCPU).contiguous();
  const int32_t* const offsets = host.const_data_ptr<int32_t>();
  int64_t end = 0;
  for (int64_t i = 0; i + 1 < host.numel() && offsets[i] == end && offsets[i + 1] >= end; ++i) {
    document(end, std::min<int64_t>(offsets[i + 1], tokens));
    end = offsets[i + 1];
  }
  if (end != tokens)
    throw Error(ErrorCode::internal, "attention",
                "the documents end at " + std::to_string(end) + ", the batch has " + std::to_string(tokens) +
                    " tokens",
                "give Batch::documents ascending offsets from 0 to the number of tokens");
  return seen;
}

void add_sinks(const at::Tensor& sinks, const at::Tensor& out, const at::Tensor& log_sums) {
  const at::Tensor whole =
      at::logaddexp(log_sums, sinks.to(log_sums.scalar_type()).unsqueeze(1).expand_as(log_sums));
  heads_of(out, log_sums).mul_(for_each_value((log_sums - whole).exp_()));
  log_sums.copy_(whole);
}

at::Tensor sink_gradient(const at::Tensor& sinks, const at::Tensor& d_out, const at::Tensor& out,
                         const at::Tensor& log_sums) {
  const at::ScalarType wide = log_sums.scalar_type();
  const at::Tensor along = (heads_of(d_out.to(wide), log_sums) * heads_of(out.to(wide), log_sums)).sum(-1);
  const at::Tensor weight = (sinks.to(wide).unsqueeze(1) - log_sums).exp_();
  return (weight * along.t()).sum(1).neg_().to(sinks.scalar_type());
}

}  // namespace heddle::model
