// Layouts of attention's tensors, and what autocast makes of its inputs: for attend() and for plugins that
// compute in its place.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"
#include "heddle/nn/attention_core.h"

namespace heddle::model {

// Attention on the CPU by blocks of keys: no matrix of scores, and no work for keys that no query of a tile
// sees (Dao et al. 2022; Dao 2023).

// Tensors have a row per token, the rows of a batch laid end to end; heads lie side by side in a row, and
// groups of heads share one of keys and values. One dtype of all: float, bfloat16 or half (sums in float), or
// double; rows may lie apart.
struct BlockedShape {
  int64_t head_dim = 0, value_dim = 0;  // of queries and keys; of values and outputs
  double scale = 1;
  double soft_cap = 0;  // scores become cap * tanh(score / cap) (Gemma 2); 0: none
};

struct BlockedInputs {
  at::Tensor q;     // [queries, heads * head_dim]
  at::Tensor k, v;  // [keys, kv_heads * head_dim], [keys, kv_heads * value_dim]
  at::Tensor seen;  // int32 [queries, 2]: query i sees keys [seen[i][0], seen[i][1])
};

// Whether the kernel reads it: a matrix on the CPU of one of these dtypes, elements of a row side by side.
HEDDLE_API bool has_attention_kernel(const at::Tensor& x);

// Writes out [queries, heads * value_dim] and log_sums [heads, queries], the logarithms of the sums of
// e^score; a query that sees nothing gets 0 and -inf. out is of the inputs' dtype or of log_sums', which is
// float, or double for double. `onto`: out (of log_sums' dtype) and log_sums hold the result of other keys,
// and these are joined to it (Liu, Zaharia and Abbeel 2023). Below autograd. Throws Error{internal} for
// inputs that it does not read.
HEDDLE_API void attend_blocked_cpu(const BlockedInputs& in, const BlockedShape& shape, const at::Tensor& out,
                                   const at::Tensor& log_sums, bool onto = false);

struct BlockedGradients {
  at::Tensor q, k, v;  // of the inputs' shapes
};

// The gradients through these keys, from the whole output and log-sums. `add`: they are added to what the
// tensors hold, of log_sums' dtype; else written, in that or the inputs' dtype. d_out is of the inputs'
// dtype.
HEDDLE_API void attend_blocked_backward_cpu(const BlockedInputs& in, const BlockedShape& shape,
                                            const at::Tensor& d_out, const at::Tensor& out,
                                            const at::Tensor& log_sums, const BlockedGradients& into,
                                            bool add = false);

// The same two on any device: the blocked kernel on the CPU; elsewhere flash attention with cumulative
// lengths (Dao 2023) for bfloat16 and half, heads of up to 256 and no soft cap, and products for the rest.
// in.seen is on the CPU.
HEDDLE_API void attend_ranges(const BlockedInputs& in, const BlockedShape& shape, const at::Tensor& out,
                              const at::Tensor& log_sums, bool onto = false);
HEDDLE_API void attend_ranges_backward(const BlockedInputs& in, const BlockedShape& shape,
                                       const at::Tensor& d_out, const at::Tensor& out,
                                       const at::Tensor& log_sums, const BlockedGradients& into,
                                       bool add = false);

enum class Pass : int8_t { forward, backward };

// Says what a pass of attention costs (heddle/ops/compute_log.h), where q, k and v are on meta: of the keys
// in in.seen, or without it of whole rows.
HEDDLE_API void record_attention(const BlockedInputs& in, const Heads& heads, Pass pass);

// [batch * sequence, heads * dim] as [batch, heads, sequence, dim], a view. `dim`: head_dim or value_dim().
HEDDLE_API at::Tensor by_head(const at::Tensor& x, const Heads& heads, int64_t dim);

// The way back, into a tensor of `shape`.
HEDDLE_API at::Tensor by_token(const at::Tensor& x, at::IntArrayRef shape);

// x in the dtype of the active autocast, else x. Below autograd.
HEDDLE_API at::Tensor under_autocast(const at::Tensor& x);

// What the kernel of the CPU is told.
HEDDLE_API BlockedShape blocked_shape(const Heads& heads);

// The keys that each token of the whole batch sees: int32 [batch * sequence, 2], begin and end, on the host.
// documents: as in Batch; absent: each row is one.
HEDDLE_API at::Tensor visible_keys(const Heads& heads, const at::Tensor& documents);

// The sinks join a result over all keys: out [tokens, heads * value_dim] and log_sums [heads, tokens] are
// changed in place.
HEDDLE_API void add_sinks(const at::Tensor& sinks, const at::Tensor& out, const at::Tensor& log_sums);

// The gradient of the sinks from the final output and log-sums.
HEDDLE_API at::Tensor sink_gradient(const at::Tensor& sinks, const at::Tensor& d_out, const at::Tensor& out,
                                    const at::Tensor& log_sums);

}  // namespace heddle::model
