// Cross entropy of a row of logits, with its gradient written over the logits. One block per row.
#pragma once

#include "device.h"

HEDDLE_DEVICE float capped(float x, float cap) {
  return cap == 0 ? x : cap * tanhf(x / cap);
}

// losses[row] = (log of the sum of e^logit - the label's logit) * counted[row]. With `with_gradient` the
// logits are replaced by the gradients of the summed losses.
template <class T, class Pack>
HEDDLE_DEVICE void token_loss(T* logits, const i64* labels, const float* counted, float* losses,
                              int vocabulary, float cap, int with_gradient) {
  HEDDLE_SHARED float shared[kThreads / kWarp];
  const i64 row = blockIdx.x;
  T* const at = logits + row * vocabulary;
  const float counts = counted[row];
  float most = -infinity(), sum = 0;
  for (int i = threadIdx.x * Pack::kSize; i < vocabulary; i += kThreads * Pack::kSize) {
    const Pack part = load<Pack>(at + i);
    float largest = most;
    for (int j = 0; j < Pack::kSize; ++j) largest = fmaxf(largest, capped(wide(part.at[j]), cap));
    const bool seen = largest != -infinity();  // not NaN; NaN never counts as the largest
    if (seen) sum *= expf(most - largest);
    for (int j = 0; j < Pack::kSize; ++j) {
      const float x = capped(wide(part.at[j]), cap);
      if (seen || x != x) sum += expf(x - (seen ? largest : 0));
    }
    most = largest;
  }
  const float peak = block_max(most, shared);
  const float whole = block_sum(most == -infinity() ? sum : sum * expf(most - peak), shared);
  const i64 label = labels[row];
  const bool is_known = label >= 0 && label < vocabulary;  // else the row's loss and gradients are NaN
  const float log_z = is_known || counts == 0 ? peak + logf(whole) : no_number();
  if (threadIdx.x == 0)
    losses[row] = counts == 0 ? 0 : (log_z - capped(wide(at[is_known ? label : 0]), cap)) * counts;
  if (with_gradient == 0) return;
  __syncthreads();  // all threads have read the label's logit
  for (int i = threadIdx.x * Pack::kSize; i < vocabulary; i += kThreads * Pack::kSize) {
    Pack part = load<Pack>(at + i);
    for (int j = 0; j < Pack::kSize; ++j) {
      const float y = capped(wide(part.at[j]), cap);
      float gradient = expf(y - log_z) - (i + j == label ? 1.0f : 0.0f);
      if (cap != 0) gradient *= 1 - y / cap * (y / cap);
      narrow(counts == 0 ? 0 : gradient * counts, part.at[j]);
    }
    store(at + i, part);
  }
}
