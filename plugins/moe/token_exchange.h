// Rows that a rank sends to the experts of each rank, and rows that it receives.
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
  model::ExpertRows sorted;         // this rank's tokens, sorted by the model's experts
  std::vector<int64_t> sent, come;  // [ranks]: numbers of rows
  at::Tensor counts;                // int64 [ranks, held], on the host: received rows by rank and expert
  int64_t tokens = 0, choices = 0;
  bool padded = false;  // rows without a choice have token `tokens` and slot `tokens * choices`

  int64_t coming() const;
  // Returns the rows to send, for x [tokens, width] or a weight per slot [tokens * choices, 1]. Empty rows
  // are zeros.
  at::Tensor rows_of_tokens(const at::Tensor& x) const;
  at::Tensor rows_of_slots(const at::Tensor& weights) const;
  // Inverse of rows_of_tokens(): to_tokens() sums the rows of each token, to_slots() returns the value of
  // each slot, [tokens, choices], 0 for slots without a row.
  at::Tensor to_tokens(const at::Tensor& rows) const;
  at::Tensor to_slots(const at::Tensor& rows) const;
};

// Exchanges counts on the hosts: a collective of the ranks of ep. With `room` the ranks exchange only the
// capacity. `held`: experts per rank.
std::shared_ptr<const TokenExchange> agree(const model::Routing& routing, int64_t held, int64_t room,
                                           Communicator& ranks);

// Returns the expert of each received row, relative to this rank's first expert: int64 [rows, 1], on the
// host, where the counts are.
at::Tensor experts_of_rows(const TokenExchange& exchange);

}  // namespace heddle::moe
