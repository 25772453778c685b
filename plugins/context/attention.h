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

// How keys and values come to the queries of other ranks. Every member is a collective of the ranks of cp.
// own: this rank's keys and values, side_by_side().
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Joins the attention of this rank's queries to the keys of all ranks, its own first.
  virtual void forward(Joined& joined, const at::Tensor& own) const = 0;
  // Adds to the gradient of the queries; returns that of `own`, summed over the ranks, in the dtype of sums.
  virtual at::Tensor backward(const AttentionGradient& gradient, const at::Tensor& own) const = 0;
};

std::unique_ptr<Exchange> make_gathered(Communicator& ranks);
std::unique_ptr<Exchange> make_ring(Communicator& ranks);

// q [rows * tokens, heads * head_dim], k [rows * tokens, kv_heads * head_dim], v [rows * tokens, kv_heads *
// value_dim]: this rank's part, cut by Cut::balanced. Returns [rows * tokens, heads * value_dim]. Throws as
// model::attend_ranges().
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Local& local,
                  const Exchange& exchange);

// own [tokens, any] of all ranks, in the order of the rows. Below autograd.
at::Tensor gathered(const at::Tensor& own, const WholeRows& rows);

using Attend = std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const model::Heads& heads)>;

// Attention over keys that an indexer chooses from whole rows deals its heads, whatever the method is.
// heads.chosen: of this rank's queries, by places in whole rows. attend() gets whole rows and some heads.
// Throws as deal_heads().
at::Tensor attend_over_chosen(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const model::Heads& heads, const std::shared_ptr<const WholeRows>& rows,
                              const Attend& attend);

}  // namespace heddle::context
