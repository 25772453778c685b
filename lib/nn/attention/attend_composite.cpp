// Blocks of queries, and the keys between the first and the last that one of them sees.
#include "lib/nn/attention/attend_composite.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "heddle/nn/dropout.h"
#include "lib/nn/attention/query_blocks.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::model {
namespace {

constexpr int64_t kHeadSalt = 0x1E3779B97F4A7C15;  // odd, times the number of a head

using Block = QueryBlock;

// True for keys that a query of the block does not see.
at::Tensor hidden_keys(const at::Tensor& seen, const at::Tensor& chosen, const Block& block) {
  if (!chosen.defined()) return outside(seen, block);
  const at::Tensor keys =
      chosen.narrow(0, block.first, block.count).to(at::kLong).sub_(block.begin).clamp_(0, block.keys - 1);
  const at::Tensor left_out = at::ones({block.count, block.keys}, keys.options().dtype(at::kBool));
  return left_out.scatter_(1, keys, false).logical_or_(outside(seen, block));
}

// One block, in wide numbers; heads that share keys lie together: queries [kv_heads, group * count, dim].
class BlockScores {
 public:
  BlockScores(const BlockedInputs& in, const DeviceRanges& ranges, const BlockedShape& shape,
              const Block& block, const at::Tensor& chosen)
      : block_(block),
        shape_(shape),
        kv_heads_(in.k.size(1) / shape.head_dim),
        q_(queries(in.q, shape.head_dim)),
        k_(keys(in.k, shape.head_dim)),
        v_(keys(in.v, shape.value_dim)) {
    scores_ = at::bmm(q_, k_.transpose(1, 2)).mul_(shape.scale);
    if (shape.soft_cap > 0) scores_.div_(shape.soft_cap).tanh_().mul_(shape.soft_cap);
    hidden_ = hidden_keys(ranges.device, chosen, block);
  }

  // x [rows, heads * dim] of the block's queries.
  at::Tensor queries(const at::Tensor& x, int64_t dim) const {
    return x.narrow(0, block_.first, block_.count)
        .to(accumulation_dtype(x.scalar_type()))
        .reshape({block_.count, kv_heads_, -1, dim})
        .permute({1, 2, 0, 3})
        .reshape({kv_heads_, -1, dim});
  }
  at::Tensor keys(const at::Tensor& x, int64_t dim) const {
    return x.narrow(0, block_.begin, block_.keys)
        .to(accumulation_dtype(x.scalar_type()))
        .reshape({block_.keys, kv_heads_, dim})
        .transpose(0, 1);
  }
  // The way back: [count, heads * dim] and [keys, kv_heads * dim].
  at::Tensor to_queries(const at::Tensor& x) const {
    return x.reshape({kv_heads_, -1, block_.count, x.size(2)})
        .permute({2, 0, 1, 3})
        .reshape({block_.count, -1});
  }
  at::Tensor to_keys(const at::Tensor& x) const { return x.transpose(0, 1).reshape({block_.keys, -1}); }

  // [heads, count].
  at::Tensor log_sums() const { return at::logsumexp(masked(), -1).reshape({-1, block_.count}); }

  // e^(score - log_sum), 0 where a key is hidden. [kv_heads, group * count, keys]
  at::Tensor weights(const at::Tensor& log_sums) const {
    const at::Tensor known = log_sums.masked_fill(log_sums.isinf(), 0);  // of queries that see nothing
    return (masked() - known.reshape({kv_heads_, -1, block_.count, 1})).exp_().reshape(scores_.sizes());
  }
  // Returns the factors of the weights: 0 or 1 / (1 - p).
  at::Tensor kept(const WeightDropout& dropout) const {
    if (dropout.p >= 1) return at::zeros_like(scores_);
    const int64_t heads = kv_heads_ * scores_.size(1) / block_.count;
    const at::Tensor queries = dropout.draws.narrow(0, block_.first, block_.count);
    const at::Tensor salts = at::arange(1, heads + 1, queries.options()).mul_(kHeadSalt).unsqueeze(1);
    const at::Tensor all = uniform_draws((salts + queries).view(-1), dropout.sequence, dropout.salt);
    const at::Tensor places =
        at::arange(block_.begin, block_.begin + block_.keys, queries.options()).remainder(dropout.sequence);
    return all.index_select(1, places)
        .ge(dropout.p)
        .view(scores_.sizes())
        .to(scores_.scalar_type())
        .mul_(1 / (1 - dropout.p));
  }
  at::Tensor through_cap(at::Tensor d_scores) const {
    if (shape_.soft_cap > 0) d_scores.mul_(1 - (scores_ / shape_.soft_cap).square_());
    return d_scores.mul_(shape_.scale);
  }
  const at::Tensor& q() const { return q_; }
  const at::Tensor& k() const { return k_; }
  const at::Tensor& v() const { return v_; }

 private:
  at::Tensor masked() const {
    return scores_.view({kv_heads_, -1, block_.count, block_.keys})
        .masked_fill(hidden_, -std::numeric_limits<double>::infinity());
  }

  const Block block_;
  const BlockedShape shape_;
  const int64_t kv_heads_;
  const at::Tensor q_, k_, v_;
  at::Tensor scores_, hidden_;
};

// Joins a result to that of other keys; both are 0 and -inf where nothing is seen.
void join(const at::Tensor& part, const at::Tensor& sums, const at::Tensor& out, const at::Tensor& log_sums) {
  const at::Tensor whole = at::logaddexp(log_sums, sums), known = whole.masked_fill(whole.isinf(), 0);
  const auto scaled = [&](const at::Tensor& x, const at::Tensor& of) {
    return x.view({x.size(0), whole.size(0), -1}) * (of - known).exp_().t().unsqueeze(-1);
  };
  out.copy_((scaled(out, log_sums) + scaled(part, sums)).view(out.sizes()));
  log_sums.copy_(whole);
}

void put(const at::Tensor& value, const at::Tensor& to, int64_t first) {
  to.narrow(0, first, value.size(0)).add_(value);
}

}  // namespace

void attend_composite(const BlockedInputs& in, const DeviceRanges& ranges, const BlockedShape& shape,
                      const at::Tensor& out, const at::Tensor& log_sums, bool onto, const at::Tensor& chosen,
                      const WeightDropout& dropout) {
  if (!onto) {
    out.zero_();
    log_sums.fill_(-std::numeric_limits<double>::infinity());
  }
  for (const Block& block : query_blocks(ranges.host, log_sums.size(0))) {
    const BlockScores scores(in, ranges, shape, block, chosen);
    const at::Tensor sums = scores.log_sums();
    at::Tensor weights = scores.weights(sums);
    if (dropout.p > 0) weights.mul_(scores.kept(dropout));
    const at::Tensor part = scores.to_queries(at::bmm(weights, scores.v()));
    const at::Tensor to = out.narrow(0, block.first, block.count),
                     to_sums = log_sums.narrow(1, block.first, block.count);
    if (onto) {
      join(part, sums, to, to_sums);
      continue;
    }
    to.copy_(part);
    to_sums.copy_(sums);
  }
}

void attend_composite_backward(const BlockedInputs& in, const DeviceRanges& ranges, const BlockedShape& shape,
                               const at::Tensor& d_out, const at::Tensor& out, const at::Tensor& log_sums,
                               const BlockedGradients& into, bool add, const at::Tensor& chosen,
                               const WeightDropout& dropout) {
  const at::ScalarType wide = log_sums.scalar_type();
  const auto sum_for = [&](const at::Tensor& to) {
    if (!add) to.zero_();
    return to.scalar_type() == wide ? to : to.to(wide);  // sums of several blocks are wide
  };
  const at::Tensor d_q = sum_for(into.q), d_k = sum_for(into.k), d_v = sum_for(into.v);
  for (const Block& block : query_blocks(ranges.host, log_sums.size(0))) {
    const BlockScores scores(in, ranges, shape, block, chosen);
    const at::Tensor weights = scores.weights(log_sums.narrow(1, block.first, block.count));
    const at::Tensor dy = scores.queries(d_out, shape.value_dim), y = scores.queries(out, shape.value_dim);
    const at::Tensor kept = dropout.p > 0 ? scores.kept(dropout) : at::Tensor();
    const at::Tensor used = kept.defined() ? weights * kept : weights;
    put(scores.to_keys(at::bmm(used.transpose(1, 2), dy)), d_v, block.begin);
    const at::Tensor along = (dy * y).sum(-1, true);
    at::Tensor d_weights = at::bmm(dy, scores.v().transpose(1, 2));
    if (kept.defined()) d_weights.mul_(kept);
    const at::Tensor d_scores = scores.through_cap(d_weights.sub_(along).mul_(weights));
    put(scores.to_queries(at::bmm(d_scores, scores.k())), d_q, block.first);
    put(scores.to_keys(at::bmm(d_scores.transpose(1, 2), scores.q())), d_k, block.begin);
  }
  if (!d_q.is_same(into.q)) into.q.copy_(d_q);
  if (!d_k.is_same(into.k)) into.k.copy_(d_k);
  if (!d_v.is_same(into.v)) into.v.copy_(d_v);
}

}  // namespace heddle::model
