// Attention over a sequence that is split over the ranks of cp, as one autograd node.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "heddle/mesh/communicator.h"
#include "heddle/nn/attention_core.h"
#include "joined.h"
#include "mixers.h"

namespace heddle::context {

// Transfer of keys and values between ranks. Every member is a collective of the ranks of cp. own: this
// rank's keys and values, as side_by_side() returns them.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Accumulates the attention of this rank's queries to the keys of all ranks, beginning with its own keys.
  virtual void forward(Joined& joined, const at::Tensor& own) const = 0;
  // Adds to the gradient of the queries. Returns the gradient of `own`, summed over the ranks in the
  // accumulation dtype.
  virtual at::Tensor backward(const AttentionGradient& gradient, const at::Tensor& own) const = 0;
};

std::unique_ptr<Exchange> make_gathered(Communicator& ranks);
std::unique_ptr<Exchange> make_ring(Communicator& ranks);

// Attention of this rank's tokens, assigned by Cut::balanced, to the tokens of all ranks. q: [rows * tokens,
// heads * head_dim], k: [rows * tokens, kv_heads * head_dim], v: [rows * tokens, kv_heads * value_dim].
// Returns [rows * tokens, heads * value_dim]. Throws what model::attend_ranges() throws.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Local& local,
                  const Exchange& exchange);

// Gathers `own` [tokens, any] of all ranks, in the order of the rows. Not recorded by autograd.
at::Tensor gathered(const at::Tensor& own, const WholeRows& rows);

using Attend = std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const model::Heads& heads)>;

// Attention over keys that an indexer selects from whole rows. It splits heads among the ranks, whatever the
// method: attend() gets whole rows and some of the heads. heads.chosen: keys selected for this rank's
// queries, by position in whole rows. Throws what deal_heads() throws.
at::Tensor attend_over_chosen(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const model::Heads& heads, const std::shared_ptr<const WholeRows>& rows,
                              const Attend& attend);

}  // namespace heddle::context
