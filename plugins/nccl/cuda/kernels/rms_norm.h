// RMSNorm and its gradients, one block per row (Zhang and Sennrich 2019). The factor of a normalized element
// is its weight, or 1 + weight (Gemma).
#pragma once

#include "device.h"

template <class T, class Pack>
HEDDLE_DEVICE void rms_norm(const T* x, const T* weight, T* y, float* roots, int width, float eps,
                            float plus) {
  HEDDLE_SHARED float shared[kThreads / kWarp];
  const i64 begin = static_cast<i64>(blockIdx.x) * width;
  float squares = 0;
  for (int i = threadIdx.x * Pack::kSize; i < width; i += kThreads * Pack::kSize) {
    const Pack part = load<Pack>(x + begin + i);
    for (int j = 0; j < Pack::kSize; ++j) squares += wide(part.at[j]) * wide(part.at[j]);
  }
  const float root = rsqrtf(block_sum(squares, shared) / width + eps);
  if (threadIdx.x == 0) roots[blockIdx.x] = root;
  for (int i = threadIdx.x * Pack::kSize; i < width; i += kThreads * Pack::kSize) {
    const Pack part = load<Pack>(x + begin + i), factor = load<Pack>(weight + i);
    Pack out;
    for (int j = 0; j < Pack::kSize; ++j)
      narrow(wide(part.at[j]) * root * (wide(factor.at[j]) + plus), out.at[j]);
    store(y + begin + i, out);
  }
}

// A block computes every gridDim-th row, and writes its part of the weight's gradient to `sums` [gridDim,
// width]. weight_sums: one float per column, in dynamic shared memory. dx or sums may be null.
template <class T, class Pack>
HEDDLE_DEVICE void rms_norm_backward(const T* dy, const T* x, const T* weight, const float* roots, T* dx,
                                     float* sums, int rows, int width, float plus, float* weight_sums) {
  HEDDLE_SHARED float shared[kThreads / kWarp];
  for (int i = threadIdx.x * Pack::kSize; sums != nullptr && i < width; i += kThreads * Pack::kSize)
    for (int j = 0; j < Pack::kSize; ++j) weight_sums[i + j] = 0;
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const i64 begin = row * width;
    const float root = roots[row];
    float along = 0;
    for (int i = threadIdx.x * Pack::kSize; i < width; i += kThreads * Pack::kSize) {
      const Pack d = load<Pack>(dy + begin + i), part = load<Pack>(x + begin + i),
                 factor = load<Pack>(weight + i);
      for (int j = 0; j < Pack::kSize; ++j) {
        const float normal = wide(part.at[j]) * root;
        along += wide(d.at[j]) * (wide(factor.at[j]) + plus) * normal;
        if (sums != nullptr) weight_sums[i + j] += wide(d.at[j]) * normal;
      }
    }
    if (dx == nullptr) continue;
    const float mean = block_sum(along, shared) / width;
    for (int i = threadIdx.x * Pack::kSize; i < width; i += kThreads * Pack::kSize) {
      const Pack d = load<Pack>(dy + begin + i), part = load<Pack>(x + begin + i),
                 factor = load<Pack>(weight + i);
      Pack out;
      for (int j = 0; j < Pack::kSize; ++j)
        narrow((wide(d.at[j]) * (wide(factor.at[j]) + plus) - wide(part.at[j]) * root * mean) * root,
               out.at[j]);
      store(dx + begin + i, out);
    }
  }
  if (sums == nullptr) return;
  const i64 begin = static_cast<i64>(blockIdx.x) * width;
  for (int i = threadIdx.x * Pack::kSize; i < width; i += kThreads * Pack::kSize)
    for (int j = 0; j < Pack::kSize; ++j) sums[begin + i + j] = weight_sums[i + j];
}
