// Gated unit, and in-place rotation of queries and keys.
#pragma once

#include "device.h"

// y = silu(gate) * up. Rows of gate and up are `stride` elements apart; y is contiguous.
template <class T, class Pack>
HEDDLE_DEVICE void swiglu(const T* gate, const T* up, T* y, i64 rows, int width, i64 gate_stride,
                          i64 up_stride) {
  const i64 packs = width / Pack::kSize, all = rows * packs;
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < all;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    const i64 row = i / packs, column = i % packs * Pack::kSize;
    const Pack g = load<Pack>(gate + row * gate_stride + column),
               u = load<Pack>(up + row * up_stride + column);
    Pack out;
    for (int j = 0; j < Pack::kSize; ++j) {
      const float x = wide(g.at[j]);
      narrow(x / (1 + expf(-x)) * wide(u.at[j]), out.at[j]);
    }
    store(y + row * width + column, out);
  }
}

// d_both: [rows, 2 * width], the gradients of gate and up side by side.
template <class T, class Pack>
HEDDLE_DEVICE void swiglu_backward(const T* dy, const T* gate, const T* up, T* d_both, i64 rows, int width,
                                   i64 dy_stride, i64 gate_stride, i64 up_stride) {
  const i64 packs = width / Pack::kSize, all = rows * packs;
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < all;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    const i64 row = i / packs, column = i % packs * Pack::kSize;
    const Pack d = load<Pack>(dy + row * dy_stride + column),
               g = load<Pack>(gate + row * gate_stride + column),
               u = load<Pack>(up + row * up_stride + column);
    Pack d_gate, d_up;
    for (int j = 0; j < Pack::kSize; ++j) {
      const float x = wide(g.at[j]), sigmoid = 1 / (1 + expf(-x)), dx = wide(d.at[j]);
      narrow(dx * wide(u.at[j]) * sigmoid * (1 + x * (1 - sigmoid)), d_gate.at[j]);
      narrow(dx * x * sigmoid, d_up.at[j]);
    }
    store(d_both + row * 2 * width + column, d_gate);
    store(d_both + row * 2 * width + width + column, d_up);
  }
}

// x *= *factor.
template <class T, class Pack>
HEDDLE_DEVICE void scale(T* x, const float* factor, i64 count) {
  const float by = *factor;
  for (i64 i = (static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x) * Pack::kSize; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads * Pack::kSize) {
    Pack part = load<Pack>(x + i);
    for (int j = 0; j < Pack::kSize; ++j) narrow(wide(part.at[j]) * by, part.at[j]);
    store(x + i, part);
  }
}

// Rotates x in place: heads of head_dim elements, in rows that are `stride` elements apart. The elements
// [first, first + 2 * half) of each head are rotated by the angles of their token (cos and sin [tokens,
// half]), in pairs (i, half + i) or, if interleaved, (2i, 2i + 1).
template <class T, class Pack>
HEDDLE_DEVICE void rotate(T* x, const float* cos, const float* sin, i64 tokens, int heads, i64 stride,
                          int head_dim, int first, int half, float direction) {
  const i64 packs = half / Pack::kSize, all = tokens * heads * packs;
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < all;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    const i64 token = i / (heads * packs), head = i / packs % heads, pair = i % packs * Pack::kSize;
    T* const a = x + token * stride + head * head_dim + first + pair;
    T* const b = a + half;
    Pack left = load<Pack>(a), right = load<Pack>(b);
    for (int j = 0; j < Pack::kSize; ++j) {
      const float c = cos[token * half + pair + j], s = sin[token * half + pair + j] * direction;
      const float p = wide(left.at[j]), q = wide(right.at[j]);
      narrow(p * c - q * s, left.at[j]);
      narrow(q * c + p * s, right.at[j]);
    }
    store(a, left);
    store(b, right);
  }
}

template <class T>
HEDDLE_DEVICE void rotate_interleaved(T* x, const float* cos, const float* sin, i64 tokens, int heads,
                                      i64 stride, int head_dim, int first, int half, float direction) {
  const i64 all = tokens * heads * half;
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < all;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    const i64 token = i / (static_cast<i64>(heads) * half), head = i / half % heads, pair = i % half;
    T* const at = x + token * stride + head * head_dim + first + 2 * pair;
    const float c = cos[token * half + pair], s = sin[token * half + pair] * direction;
    const float p = wide(at[0]), q = wide(at[1]);
    narrow(p * c - q * s, at[0]);
    narrow(q * c + p * s, at[1]);
  }
}
