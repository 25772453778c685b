// Attention of this rank's queries to the keys of one rank after another, combined by log-sum-exp (Liu,
// Zaharia and Abbeel 2023, ring attention).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "heddle/nn/attention_core.h"
#include "sequence.h"

namespace heddle::context {

// Shapes of one attention of this rank, and the assignment of tokens to ranks.
struct Local {
  model::Heads heads;
  std::shared_ptr<const Rows> rows;
  int rank = 0;
};

// Returns keys and values as one tensor for transfers: [tokens, kv_heads * (head_dim + value_dim)], keys
// first.
at::Tensor side_by_side(const at::Tensor& keys, const at::Tensor& values);

class Joined {
 public:
  Joined(const at::Tensor& queries, const Local& local);
  // Adds the keys and values of the rank `other`. This rank's own come first.
  void add(const at::Tensor& seen, int other);
  // Adds the sinks of the heads, after all keys.
  void finish();

  const at::Tensor& out() const { return out_; }  // [tokens, heads * value_dim], in the accumulation dtype
  const at::Tensor& log_sums() const { return log_sums_; }  // [heads, tokens]

 private:
  const at::Tensor& queries_;
  const Local& local_;
  at::Tensor out_, log_sums_;
  bool onto_ = false;
};

// Gradients through the keys of one rank, from the final output and log-sums (Dao 2023).
struct AttentionGradient {
  const Local& local;
  at::Tensor d_out, queries, out, log_sums;
  at::Tensor d_queries;  // in the accumulation dtype
  // Adds to d_queries and to d_seen, which has the layout of `seen`.
  void add(const at::Tensor& seen, int other, const at::Tensor& d_seen) const;
};

}  // namespace heddle::context
