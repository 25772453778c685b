// Sorting of rows by expert, with or without padding to the capacity, and the exchange of counts.
#include "token_exchange.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "heddle/model/region.h"

namespace heddle::moe {
namespace {

using model::ExpertRows;

// Gives each expert `room` rows: its choices in the order of the tokens, then empty rows. Reads nothing on
// the host.
ExpertRows sorted_into_room(const at::Tensor& chosen, int64_t experts, int64_t room) {
  const at::Tensor flat = chosen.reshape({-1});
  const int64_t slots = flat.numel(), k = chosen.size(1);
  ExpertRows out;
  for (int64_t e = 0; e <= experts; ++e) out.begins.push_back(e * room);
  const auto [sorted, order] = at::sort(flat, /*stable=*/true, 0, false);
  const at::Tensor place = at::arange(slots, flat.options()) - at::searchsorted(sorted, sorted);
  const at::Tensor row = at::where(sorted < 0, -1, sorted * room + place);
  out.rows = at::empty_like(flat).index_copy_(0, order, row);
  // Choices without an expert go behind the last row.
  const at::Tensor target = at::where(row < 0, experts * room, row);
  out.slots = at::full({experts * room + 1}, slots, flat.options()).index_copy_(0, target, order);
  out.slots = out.slots.narrow(0, 0, experts * room);
  out.tokens = out.slots.floor_divide(k);
  return out;
}

at::Tensor with_zeros(const at::Tensor& x) {
  return at::cat({x, at::zeros({1, x.size(1)}, x.options().requires_grad(false))});
}

// Returns the number of received rows by rank and expert.
at::Tensor exchange_counts(const ExpertRows& sorted, int64_t held, Communicator& ranks) {
  const at::Tensor own = at::empty({ranks.size(), held}, at::kLong), got = at::empty_like(own);
  int64_t* const count = own.mutable_data_ptr<int64_t>();
  for (int64_t e = 0; e < own.numel(); ++e) count[e] = sorted.of(e);
  const std::vector<int64_t> one_each(static_cast<size_t>(ranks.size()), 1);
  ranks.all_to_all(got, own, one_each, one_each)->wait();
  return got;
}

at::Tensor exchange_room(int64_t room, int64_t held, Communicator& ranks) {
  const at::Tensor own = at::full({1}, room, at::kLong), all = at::empty({ranks.size()}, at::kLong);
  ranks.all_gather(all, own)->wait();
  return all.unsqueeze(1).expand({ranks.size(), held}).contiguous();
}

// On meta, assumes that every rank sends as many rows as this rank.
at::Tensor taken_for_granted(const ExpertRows& sorted, int64_t held, Communicator& ranks) {
  const at::Tensor got = at::empty({ranks.size(), held}, at::kLong);
  int64_t* count = got.mutable_data_ptr<int64_t>();
  for (int64_t r = 0; r < ranks.size(); ++r)
    for (int64_t e = 0; e < held; ++e) *count++ = sorted.of(ranks.rank() * held + e);
  return got;
}

}  // namespace

int64_t TokenExchange::coming() const {
  int64_t rows = 0;
  for (const int64_t count : come) rows += count;
  return rows;
}

at::Tensor TokenExchange::rows_of_tokens(const at::Tensor& x) const {
  if (x.is_meta()) return at::empty({sorted.count(), x.size(1)}, x.options().requires_grad(false));
  return at::index_select(padded ? with_zeros(x) : x, 0, sorted.tokens);
}

at::Tensor TokenExchange::rows_of_slots(const at::Tensor& weights) const {
  if (weights.is_meta()) return at::empty({sorted.count(), 1}, weights.options().requires_grad(false));
  return at::index_select(padded ? with_zeros(weights) : weights, 0, sorted.slots);
}

at::Tensor TokenExchange::to_tokens(const at::Tensor& rows) const {
  return model::combine_rows(rows, sorted, tokens);
}

at::Tensor TokenExchange::to_slots(const at::Tensor& rows) const {
  at::Tensor out = at::zeros({tokens * choices + 1}, rows.options());
  if (!rows.is_meta()) out.index_copy_(0, sorted.slots, rows.reshape({-1}));
  return out.narrow(0, 0, tokens * choices).view({tokens, choices});
}

std::shared_ptr<const TokenExchange> agree(const model::Routing& routing, int64_t held, int64_t room,
                                           Communicator& ranks) {
  const at::Tensor& chosen = routing.experts;
  auto exchange = std::make_shared<TokenExchange>();
  exchange->tokens = chosen.size(0);
  exchange->choices = chosen.size(1);
  exchange->padded = room > 0 && !chosen.is_meta();
  exchange->sorted = exchange->padded ? sorted_into_room(chosen, held * ranks.size(), room)
                                      : model::sort_by_expert(chosen, held * ranks.size());
  exchange->counts = chosen.is_meta() ? taken_for_granted(exchange->sorted, held, ranks)
                                      : model::once(model::Operator::collective, [&] {
                                          return exchange->padded
                                                     ? exchange_room(room, held, ranks)
                                                     : exchange_counts(exchange->sorted, held, ranks);
                                        });
  const int64_t* count = exchange->counts.const_data_ptr<int64_t>();
  for (int64_t r = 0; r < ranks.size(); ++r, count += held) {
    int64_t rows = 0;
    for (int64_t e = 0; e < held; ++e) rows += count[e];
    exchange->come.push_back(rows);
    exchange->sent.push_back(exchange->sorted.begins[(r + 1) * held] - exchange->sorted.begins[r * held]);
  }
  return exchange;
}

at::Tensor experts_of_rows(const TokenExchange& exchange) {
  const int64_t ranks = exchange.counts.size(0), held = exchange.counts.size(1);
  const at::Tensor out = at::empty({exchange.coming(), 1}, at::kLong);
  int64_t* next = out.mutable_data_ptr<int64_t>();
  const int64_t* count = exchange.counts.const_data_ptr<int64_t>();
  for (int64_t r = 0; r < ranks; ++r)
    for (int64_t e = 0; e < held; ++e) next = std::fill_n(next, *count++, e);
  return out;
}

}  // namespace heddle::moe
