// Attention of this rank's queries to the keys of one rank after another, joined by log-sums (Liu, Zaharia
// and Abbeel 2023, ring attention).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "heddle/nn/attention_core.h"
#include "sequence.h"

namespace heddle::context {

// One attention of this rank: its shapes, and who holds which tokens.
struct Local {
  model::Heads heads;
  std::shared_ptr<const Rows> rows;
  int rank = 0;
};

// Keys and values of a rank travel as one tensor [tokens, kv_heads * (head_dim + value_dim)]: keys first.
at::Tensor side_by_side(const at::Tensor& keys, const at::Tensor& values);

class Joined {
 public:
  Joined(const at::Tensor& queries, const Local& local);
  // The keys and values of `other`, this rank's own first.
  void add(const at::Tensor& seen, int other);
  // The sinks of the heads, after all keys.
  void finish();

  const at::Tensor& out() const { return out_; }  // [tokens, heads * value_dim], in the dtype of sums
  const at::Tensor& log_sums() const { return log_sums_; }  // [heads, tokens]

 private:
  const at::Tensor& queries_;
  const Local& local_;
  at::Tensor out_, log_sums_;
  bool onto_ = false;
};

// The gradients through one rank's keys, from the joined output and log-sums (Dao 2023).
struct AttentionGradient {
  const Local& local;
  at::Tensor d_out, queries, out, log_sums;
  at::Tensor d_queries;  // in the dtype of sums
  // Adds to d_queries, and to d_seen, which lies as `seen`.
  void add(const at::Tensor& seen, int other, const at::Tensor& d_seen) const;
};

}  // namespace heddle::context
