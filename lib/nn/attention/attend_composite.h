// Attention over ranges of keys by products of LibTorch: on every device, in every dtype and for every shape.
// The slow way, for what the fused kernels of a device do not take.
#pragma once

#include "lib/nn/attention/device_ranges.h"

namespace heddle::model {

// Sets weights of the softmax to zero, and divides the others by 1 - p (Srivastava et al. 2014). What is
// dropped follows from the key of the query's token, the head, and the key's place in its row.
struct WeightDropout {
  double p = 0;          // 0: none
  at::Tensor draws;      // int64 [queries]
  int64_t sequence = 0;  // of a row: keys lie in rows of so many
  uint64_t salt = 0;
};

// Computes attend_blocked_cpu() and attend_blocked_backward_cpu(); the ranges replace in.seen, which is not
// read. Scores are held for a block of queries at a time. chosen: as Heads::chosen.
HEDDLE_API void attend_composite(const BlockedInputs& in, const DeviceRanges& ranges,
                                 const BlockedShape& shape, const at::Tensor& out, const at::Tensor& log_sums,
                                 bool onto, const at::Tensor& chosen = {}, const WeightDropout& dropout = {});
HEDDLE_API void attend_composite_backward(const BlockedInputs& in, const DeviceRanges& ranges,
                                          const BlockedShape& shape, const at::Tensor& d_out,
                                          const at::Tensor& out, const at::Tensor& log_sums,
                                          const BlockedGradients& into, bool add,
                                          const at::Tensor& chosen = {}, const WeightDropout& dropout = {});

}  // namespace heddle::model
