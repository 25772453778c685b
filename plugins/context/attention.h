// Attention over a sequence that is split over the ranks of cp, as one autograd node.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/mesh/communicator.h"
#include "heddle/nn/attention_core.h"
#include "pieces.h"

namespace heddle::context {

// How keys and values reach the queries of other ranks. Every member is a collective of the ranks of cp. Keys
// and values are sent as one tensor [2, rows * tokens, kv_heads * head_dim].
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Joins the attention of this rank's queries to the keys of all ranks, its own first.
  virtual void forward(Joined& joined, const at::Tensor& own, const model::Heads& heads) const = 0;
  // Adds to d_queries; returns the gradient of `own`, summed over the ranks, in the dtype of sums.
  virtual at::Tensor backward(const AttentionGradient& gradient, at::Tensor& d_queries, const at::Tensor& own,
                              const model::Heads& heads) const = 0;
};

std::unique_ptr<Exchange> make_gathered(Communicator& ranks);
std::unique_ptr<Exchange> make_ring(Communicator& ranks);

// q [rows * tokens, heads * head_dim], k and v [rows * tokens, kv_heads * head_dim]: this rank's part of a
// causal attention, cut by Cut::head_tail. Returns q's shape. Throws Error{not_built} off the CPU.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const model::Heads& heads,
                  const Exchange& exchange);

// Keys and values by head: views.
KeysValues both_by_head(const at::Tensor& both, const model::Heads& heads);

}  // namespace heddle::context
