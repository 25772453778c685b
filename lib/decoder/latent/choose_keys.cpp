// Scores by LibTorch products, and a top-k choice that does not depend on how ties are sorted.
#include "lib/decoder/latent/choose_keys.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "heddle/nn/attention_layout.h"
#include "heddle/nn/device_ops.h"
#include "heddle/ops/compute_log.h"
#include "lib/nn/attention/device_ranges.h"
#include "lib/nn/attention/query_blocks.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

using model::QueryBlock;

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Returns [count, keys]; -inf for keys that a query does not see.
at::Tensor scores_of(const KeyScores& in, const at::Tensor& seen, const QueryBlock& block) {
  const int64_t heads = in.weights.size(1), dim = in.k.size(1);
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  const at::Tensor q = in.q.narrow(0, block.first, block.count).reshape({-1, dim});
  const at::Tensor k = in.k.narrow(0, block.begin, block.keys);
  const at::Tensor each = at::mm(q, k.t()).mul_(scale).relu_().view({block.count, heads, block.keys});
  const at::Tensor weights = in.weights.narrow(0, block.first, block.count).unsqueeze(1);
  return at::bmm(weights, each).squeeze(1).masked_fill_(model::outside(seen, block), kNever);
}

// Returns bool [count, keys]: the keys above the k-th score, and the first of those that equal it.
at::Tensor chosen_of(const at::Tensor& scores, const at::Tensor& threshold, int64_t k) {
  const at::Tensor above = scores.gt(threshold);
  const at::Tensor equal = scores.eq(threshold).logical_and_(scores.ne(kNever));
  const at::Tensor room = k - above.sum(1, true);
  return equal.logical_and_(at::cumsum(equal, 1).le(room)).logical_or_(above);
}

// Writes the positions of the chosen keys in order; remaining columns are unchanged.
void write_places(const at::Tensor& chosen, int64_t begin, const at::Tensor& to) {
  const int64_t columns = to.size(1) - 1;  // the last column receives keys that are not chosen
  const at::Tensor column = at::where(chosen, at::cumsum(chosen, 1).sub_(1), columns);
  const at::Tensor place = at::arange(begin, begin + chosen.size(1), to.options());
  to.scatter_(1, column, place.expand_as(chosen));
}

at::Tensor choose(const at::Tensor& scores, int64_t begin, int64_t top_k) {
  const int64_t k = std::min(top_k, scores.size(1));
  const auto [values, keys] = at::topk(scores, k);
  const at::Tensor best = keys.narrow(1, 0, 1).to(at::kInt).add_(begin);
  const at::Tensor out = best.expand({scores.size(0), top_k + 1}).contiguous();
  write_places(chosen_of(scores, values.narrow(1, k - 1, 1), k), begin, out);
  return out.narrow(1, 0, top_k);
}

// Converts to the accumulation dtype.
KeyScores widened(const KeyScores& in) {
  const at::ScalarType wide = model::accumulation_dtype(in.q.scalar_type());
  const double factor = 1 / std::sqrt(static_cast<double>(in.weights.size(1)));
  return {in.q.to(wide), in.k.to(wide), in.weights.to(wide) * factor};
}

// Records the operation as a device runs it; documents are unknown on meta.
void record_choice(const KeyScores& in, int64_t sequence) {
  const auto tokens = static_cast<double>(in.q.size(0)), keys = static_cast<double>(sequence) / 2;
  const auto bytes = [](const at::Tensor& x) {
    return static_cast<double>(x.numel()) * static_cast<double>(x.element_size());
  };
  const double products = tokens * keys * 2 * static_cast<double>(in.q.size(1) + in.weights.size(1));
  record_operator("heddle::choose_keys",
                  {products, bytes(in.q) + bytes(in.k) + bytes(in.weights), tokens * keys * 4},
                  ProductShape{1, in.q.size(0), sequence / 2, in.q.size(1), in.q.scalar_type()});
}

}  // namespace

at::Tensor choose_keys(const KeyScores& in, int64_t batch, int64_t sequence, const at::Tensor& documents,
                       int64_t top_k, const at::Tensor& places) {
  if (in.q.is_meta()) {
    record_choice(in, sequence);
    return at::empty({in.q.size(0), top_k}, in.q.options().dtype(at::kInt));
  }
  const model::Heads heads{batch, sequence, in.k.size(1)};
  const auto ranges = model::kept_ranges(heads, documents, in.q);
  if (!places.defined()) return choose_within(in, ranges->host, ranges->device, top_k);
  const at::Tensor host = at::index_select(ranges->host, 0, places);
  return choose_within(in, host, model::sent_to(host, in.q.device()), top_k);
}

at::Tensor choose_within(const KeyScores& in, const at::Tensor& host, const at::Tensor& device,
                         int64_t top_k) {
  const KeyScores all = widened(in);
  const at::Tensor out = at::zeros({in.q.size(0), top_k}, in.q.options().dtype(at::kInt));
  for (const QueryBlock& block : model::query_blocks(host, in.weights.size(1)))
    out.narrow(0, block.first, block.count).copy_(choose(scores_of(all, device, block), block.begin, top_k));
  return out;
}

at::Tensor choose_keys_of_last(const KeyScores& in, int64_t top_k) {
  const auto keys = static_cast<int>(in.k.size(0));
  const at::Tensor seen = at::tensor({0, keys}, at::kInt).view({1, 2}).to(in.k.device());
  return choose(scores_of(widened(in), seen, {0, 1, 0, keys}), 0, top_k);
}

}  // namespace heddle::decoder
