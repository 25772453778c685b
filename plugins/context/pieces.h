// Attention of some queries to some keys, whose results are joined by their log-sums.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/nn/attention_core.h"

namespace heddle::context {

// [rows * tokens, heads * head_dim] as [rows, heads, tokens, head_dim], a view.
at::Tensor by_head(const at::Tensor& x, const model::Heads& heads);
at::Tensor by_token(const at::Tensor& x, at::IntArrayRef shape);

// Keys and values of one rank: its chunk of the head, then that of the tail.
struct KeysValues {
  at::Tensor keys, values;  // [rows, kv_heads, tokens, head_dim]
};

// Which of this rank's queries see which of another rank's keys. Ranks hold the r-th chunk from the front and
// from the end of the sequence (Cut::head_tail).
struct Sight {
  int64_t first_query = 0, queries = 0;  // of this rank's tokens
  int64_t keys = 0;                      // this many first tokens of the other rank
  bool causal = false;                   // else each query sees all of them
};
Sight sight(int rank, int other, int64_t tokens);

// Queries against the keys of one rank after another. The log-sums join the parts exactly (Liu, Zaharia and
// Abbeel 2023, ring attention).
class Joined {
 public:
  explicit Joined(const at::Tensor& queries);  // [rows, heads, tokens, head_dim]
  void add(const KeysValues& seen, const Sight& sight);

  at::Tensor out() const { return out_; }            // of the queries' shape and dtype of sums
  at::Tensor log_sums() const { return log_sums_; }  // fp32 [rows, heads, tokens]

 private:
  at::Tensor queries_, out_, log_sums_;
};

// The gradients through one rank's keys, from the joined output and log-sums (Dao 2023). `d_queries` is added
// to; those of keys and values are added to `d_seen`.
struct AttentionGradient {
  at::Tensor d_out, queries, out, log_sums;
  void add(const KeysValues& seen, const Sight& sight, at::Tensor& d_queries, KeysValues& d_seen) const;
};

}  // namespace heddle::context
