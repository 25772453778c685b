// Ranges as pieces with cumulative lengths, and rows that are gathered for a call and added back.
#include "lib/nn/attention/attend_varying.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "heddle/nn/device_ops.h"
#include "lib/nn/cpu/attend_tile_cpu.h"

namespace heddle::model {
namespace {

// Queries [first, first + count), which see keys within [begin, end).
struct Piece {
  int64_t first = 0, count = 0;
  int32_t begin = 0, end = 0;
  int32_t begin_step = 0, end_step = 0;  // how the range moves from one query to the next
  int32_t window = 0;                    // of ranges that move at both ends
  // A causal piece begins with ranges that grow, up to the window, and then move.
  bool takes(const KeyRange& last, const KeyRange& next) const {
    const int32_t begins = next.begin - last.begin, ends = next.end - last.end;
    if (count > 1 && begins == begin_step && ends == end_step) return true;
    if (ends == 1 && begins == 1) return count == 1 || (end_step == 1 && begin_step == 0);
    return count == 1 && begins == 0 && (ends == 0 || ends == 1);
  }
  void take(const KeyRange& last, const KeyRange& next) {
    begin_step = next.begin - last.begin;
    end_step = next.end - last.end;
    if (begin_step == 1) window = next.end - next.begin;
    ++count;
    end = next.end;
  }
  bool causal() const { return end_step == 1; }
};

std::vector<Piece> pieces_of(const KeyRange* seen, int64_t queries) {
  std::vector<Piece> out;
  bool open = false;
  for (int64_t i = 0; i < queries; ++i) {
    const KeyRange& next = seen[i];
    const bool blind = next.begin >= next.end;
    if (open && !blind && out.back().takes(seen[i - 1], next)) {
      out.back().take(seen[i - 1], next);
    } else if (!blind) {
      out.push_back({i, 1, next.begin, next.end});
    }
    open = !blind;
  }
  return out;
}

// Whether the call's window leaves the piece all its keys, and the other way round.
bool agree(const Piece& piece, const VaryingCall& call) {
  if (piece.causal() != call.causal || call.window == piece.window) return piece.causal() == call.causal;
  return call.causal && (piece.window == 0 ? piece.end - piece.begin <= call.window
                                           : call.window == 0 && call.max_k <= piece.window);
}

void add_piece(const Piece& piece, VaryingCall& to) {
  to.window = std::max<int64_t>(to.window, piece.window);
  for (int64_t i = 0; i < piece.count; ++i) to.queries.push_back(piece.first + i);
  for (int64_t key = piece.begin; key < piece.end; ++key) to.keys.push_back(key);
  to.cum_q.push_back(static_cast<int32_t>(to.queries.size()));
  to.cum_k.push_back(static_cast<int32_t>(to.keys.size()));
  to.max_q = std::max(to.max_q, piece.count);
  to.max_k = std::max<int64_t>(to.max_k, piece.end - piece.begin);
}

// Rows of tensors that a call takes; undefined: all of them, in their order.
at::Tensor rows_on(const std::vector<int64_t>& rows, int64_t all, const at::Tensor& like) {
  const bool whole = static_cast<int64_t>(rows.size()) == all && std::is_sorted(rows.begin(), rows.end());
  return whole ? at::Tensor() : sent_to(at::tensor(rows, at::kLong), like.device());
}

at::Tensor taken(const at::Tensor& x, const at::Tensor& rows, int64_t dim) {
  const at::Tensor some = rows.defined() ? x.index_select(0, rows) : x;
  return some.reshape({some.size(0), -1, dim});
}

at::Tensor sums_taken(const at::Tensor& sums, const at::Tensor& rows) {
  return rows.defined() ? sums.index_select(1, rows) : sums;
}

// x [rows, heads, dim] into those rows of `to`.
void put_rows(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& to, bool add) {
  const at::Tensor flat = x.reshape({x.size(0), -1}).to(to.scalar_type());
  if (!rows.defined())
    add ? to.add_(flat) : to.copy_(flat);
  else
    add ? to.index_add_(0, rows, flat) : to.index_copy_(0, rows, flat);
}

at::Tensor lengths_on(const std::vector<int32_t>& cum, const at::Tensor& like) {
  return sent_to(at::tensor(cum, at::kInt), like.device());
}

// Joins the attention to other keys to what out and log_sums hold of these queries.
void join(const at::Tensor& part, const at::Tensor& sums, const at::Tensor& queries, const at::Tensor& out,
          const at::Tensor& log_sums) {
  const at::Tensor before = sums_taken(log_sums, queries), whole = at::logaddexp(before, sums);
  const auto share = [&](const at::Tensor& of) { return (of - whole).exp_().t().unsqueeze(-1); };
  const at::Tensor earlier = taken(out, queries, part.size(2));
  put_rows(earlier * share(before) + part.to(out.scalar_type()) * share(sums), queries, out, false);
  if (queries.defined())
    log_sums.index_copy_(1, queries, whole);
  else
    log_sums.copy_(whole);
}

}  // namespace

std::vector<VaryingCall> varying_calls(const at::Tensor& seen) {
  const auto* ranges = reinterpret_cast<const KeyRange*>(seen.const_data_ptr<int32_t>());
  std::vector<VaryingCall> out;
  for (const Piece& piece : pieces_of(ranges, seen.size(0))) {
    auto call = std::find_if(out.begin(), out.end(), [&](const VaryingCall& one) {
      return agree(piece, one) && one.keys.back() < piece.begin;
    });
    if (call == out.end()) {
      out.emplace_back().causal = piece.causal();
      call = std::prev(out.end());
    }
    add_piece(piece, *call);
  }
  return out;
}

std::vector<DeviceCall> device_calls(const at::Tensor& seen, int64_t keys, const at::Tensor& like) {
  std::vector<DeviceCall> out;
  for (const VaryingCall& call : varying_calls(seen))
    out.push_back({rows_on(call.queries, seen.size(0), like),
                   rows_on(call.keys, keys, like),
                   {lengths_on(call.cum_q, like), lengths_on(call.cum_k, like), call.max_q, call.max_k,
                    call.window, call.causal}});
  return out;
}

void attend_varying(const BlockedInputs& in, const std::vector<DeviceCall>& calls, const BlockedShape& shape,
                    const at::Tensor& out, const at::Tensor& log_sums, bool onto,
                    const VaryingKernel& kernel) {
  const bool covered = !onto && calls.size() == 1 && !calls[0].queries.defined();  // one call writes all
  if (!onto && !covered) {
    out.zero_();
    log_sums.fill_(-INFINITY);
  }
  for (const DeviceCall& of : calls) {
    const auto [part, sums] =
        kernel.forward(taken(in.q, of.queries, shape.head_dim), taken(in.k, of.keys, shape.head_dim),
                       taken(in.v, of.keys, shape.value_dim), of.lengths, shape.scale);
    if (onto) {
      join(part, sums, of.queries, out, log_sums);
      continue;
    }
    put_rows(part, of.queries, out, false);
    if (of.queries.defined())
      log_sums.index_copy_(1, of.queries, sums);
    else
      log_sums.copy_(sums);
  }
}

void attend_varying_backward(const BlockedInputs& in, const std::vector<DeviceCall>& calls,
                             const BlockedShape& shape, const at::Tensor& d_out, const at::Tensor& out,
                             const at::Tensor& log_sums, const BlockedGradients& into, bool add,
                             const VaryingKernel& kernel) {
  const bool covered = !add && calls.size() == 1 && !calls[0].queries.defined() && !calls[0].keys.defined();
  // Parts of several calls are summed wide, and rounded once.
  const bool many = !add && calls.size() > 1;
  const auto sum_for = [&](const at::Tensor& to) {
    if (many) return at::zeros(to.sizes(), to.options().dtype(log_sums.scalar_type()));
    return add || covered ? to : to.zero_();
  };
  const at::Tensor sum_q = sum_for(into.q), sum_k = sum_for(into.k), sum_v = sum_for(into.v);
  const at::Tensor result = out.to(in.q.scalar_type());
  for (const DeviceCall& of : calls) {
    const auto [d_q, d_k, d_v] =
        kernel.backward(taken(d_out, of.queries, shape.value_dim), taken(in.q, of.queries, shape.head_dim),
                        taken(in.k, of.keys, shape.head_dim), taken(in.v, of.keys, shape.value_dim),
                        taken(result, of.queries, shape.value_dim),
                        sums_taken(log_sums, of.queries).contiguous(), of.lengths, shape.scale);
    put_rows(d_q, of.queries, sum_q, !covered);
    put_rows(d_k, of.keys, sum_k, !covered);
    put_rows(d_v, of.keys, sum_v, !covered);
  }
  if (!many) return;
  into.q.copy_(sum_q);
  into.k.copy_(sum_k);
  into.v.copy_(sum_v);
}

}  // namespace heddle::model
