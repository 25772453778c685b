// Layouts of attention's tensors, and what autocast makes of its inputs: for attend() and for plugins that
// compute in its place.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"
#include "heddle/model/attend_blocked_cpu.h"
#include "heddle/model/attention_core.h"

namespace heddle::model {

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
