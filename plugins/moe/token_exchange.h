// What a rank sends to the experts of each rank, and what comes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/mesh/communicator.h"
#include "heddle/nn/experts.h"
#include "heddle/nn/router.h"

namespace heddle::moe {

struct TokenExchange {
  model::ExpertRows sorted;         // of this rank's tokens, by the model's experts
  std::vector<int64_t> sent, come;  // [ranks]: rows
  at::Tensor counts;                // int64 [ranks, held], on the host: rows that come, by rank and expert
  int64_t tokens = 0, choices = 0;
  bool padded = false;  // rows without a choice have the token `tokens` and the slot `tokens * choices`

  int64_t coming() const;
  // x [tokens, width] or a weight of each slot [tokens * choices, 1]: the rows to send; empty ones are zeros.
  at::Tensor rows_of_tokens(const at::Tensor& x) const;
  at::Tensor rows_of_slots(const at::Tensor& weights) const;
  // Back from rows: sums of each token's rows; each slot's own, zero without one, [tokens, choices].
  at::Tensor to_tokens(const at::Tensor& rows) const;
  at::Tensor to_slots(const at::Tensor& rows) const;
};

// Collective of the ranks of ep: the hosts exchange counts; with `room` only how much room each gives.
// `held`: experts of a rank.
std::shared_ptr<const TokenExchange> agree(const model::Routing& routing, int64_t held, int64_t room,
                                           Communicator& ranks);

// The expert of each row that comes, counted from this rank's first: int64 [rows, 1], on the
// host, which has the counts.
at::Tensor experts_of_rows(const TokenExchange& exchange);

}  // namespace heddle::moe
