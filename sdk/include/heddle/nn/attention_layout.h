// Tensor layouts, casts and kernels of attention, for attend() and for plugins that replace it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"
#include "heddle/nn/attention_core.h"

namespace heddle::model {

// Blocked attention on the CPU. It does not materialize the score matrix, and skips keys that no query of a
// tile attends to (Dao et al. 2022; Dao 2023).

// Shape of a blocked attention. Tensors have one row per token of the concatenated rows of a batch, with
// heads side by side. Groups of query heads share one head of keys and values. All tensors have the same
// dtype: float, bfloat16 or half (accumulated in float), or double. Rows may be strided.
struct BlockedShape {
  int64_t head_dim = 0, value_dim = 0;  // head_dim: of queries and keys; value_dim: of values and outputs
  double scale = 1;
  double soft_cap = 0;  // scores become cap * tanh(score / cap) (Gemma 2); 0: no cap
};

// Inputs of a blocked attention.
struct BlockedInputs {
  at::Tensor q;     // [queries, heads * head_dim]
  at::Tensor k, v;  // [keys, kv_heads * head_dim], [keys, kv_heads * value_dim]
  at::Tensor seen;  // int32 [queries, 2]: query i attends to keys in [seen[i][0], seen[i][1])
};

// Returns whether the kernel accepts the tensor: a matrix on the CPU with one of these dtypes and contiguous
// rows.
HEDDLE_API bool has_attention_kernel(const at::Tensor& x);

// Writes out [queries, heads * value_dim] and log_sums [heads, queries], the logsumexp of the scores. A query
// without keys gets 0 and -Inf. out has the dtype of the inputs or of log_sums, which is float (double for
// double). onto: out (in the dtype of log_sums) and log_sums hold the result for other keys, with which the
// result is merged (Liu, Zaharia and Abbeel 2023). Below autograd. Throws Error{internal} for inputs that it
// does not support.
HEDDLE_API void attend_blocked_cpu(const BlockedInputs& in, const BlockedShape& shape, const at::Tensor& out,
                                   const at::Tensor& log_sums, bool onto = false);

// Gradients of q, k and v.
struct BlockedGradients {
  at::Tensor q, k, v;  // the shapes of the inputs
};

// Computes the gradients through these keys from the complete output and log_sums. add: adds them to the
// tensors, which have the dtype of log_sums. Otherwise writes them in that dtype or in the dtype of the
// inputs. d_out has the dtype of the inputs.
HEDDLE_API void attend_blocked_backward_cpu(const BlockedInputs& in, const BlockedShape& shape,
                                            const at::Tensor& d_out, const at::Tensor& out,
                                            const at::Tensor& log_sums, const BlockedGradients& into,
                                            bool add = false);

// Versions of these functions for any device. The CPU uses the blocked kernel. Other devices use flash
// attention with cumulative lengths (Dao 2023) for bfloat16 and half with heads of up to 256 and no soft cap,
// and matrix products otherwise. in.seen is on the CPU.
HEDDLE_API void attend_ranges(const BlockedInputs& in, const BlockedShape& shape, const at::Tensor& out,
                              const at::Tensor& log_sums, bool onto = false);
HEDDLE_API void attend_ranges_backward(const BlockedInputs& in, const BlockedShape& shape,
                                       const at::Tensor& d_out, const at::Tensor& out,
                                       const at::Tensor& log_sums, const BlockedGradients& into,
                                       bool add = false);

enum class Pass : int8_t { forward, backward };

// Records the cost of an attention pass (heddle/ops/compute_log.h) with q, k and v on meta. Counts the keys
// in in.seen, or whole rows if it is undefined.
HEDDLE_API void record_attention(const BlockedInputs& in, const Heads& heads, Pass pass);

// Returns [batch * sequence, heads * dim] as a view [batch, heads, sequence, dim]. dim: head_dim or
// value_dim().
HEDDLE_API at::Tensor by_head(const at::Tensor& x, const Heads& heads, int64_t dim);

// The inverse of by_head(), into a tensor of `shape`.
HEDDLE_API at::Tensor by_token(const at::Tensor& x, at::IntArrayRef shape);

// Returns x in the dtype of the active autocast, or x without autocast. Below autograd.
HEDDLE_API at::Tensor under_autocast(const at::Tensor& x);

// Returns the arguments of the CPU kernel.
HEDDLE_API BlockedShape blocked_shape(const Heads& heads);

// Returns the keys that each token of the batch attends to: int32 [batch * sequence, 2], begin and end, on
// the host. documents: see Batch::documents.
HEDDLE_API at::Tensor visible_keys(const Heads& heads, const at::Tensor& documents);

// Adds the sinks to a result over all keys. Modifies out [tokens, heads * value_dim] and log_sums [heads,
// tokens] in place.
HEDDLE_API void add_sinks(const at::Tensor& sinks, const at::Tensor& out, const at::Tensor& log_sums);

// Returns the gradient of the sinks, from the final output and log_sums.
HEDDLE_API at::Tensor sink_gradient(const at::Tensor& sinks, const at::Tensor& d_out, const at::Tensor& out,
                                    const at::Tensor& log_sums);

}  // namespace heddle::model
