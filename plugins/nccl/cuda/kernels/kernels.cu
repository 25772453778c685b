// The entries of the library: each kernel for float and bfloat16, by 16 bytes at a time (wide) or by single numbers.
#include "elementwise.h"
#include "experts.h"
#include "rms_norm.h"
#include "round_fp8.h"
#include "token_loss.h"

#define HEDDLE_FOR(name, T, Pack)                                                                                      \
  HEDDLE_KERNEL void rms_norm_##name(const T* x, const T* weight, T* y, float* roots, int width, float eps,            \
                                     float plus) {                                                                     \
    rms_norm<T, Pack<T>>(x, weight, y, roots, width, eps, plus);                                                       \
  }                                                                                                                    \
  HEDDLE_KERNEL void rms_norm_backward_##name(const T* dy, const T* x, const T* weight, const float* roots, T* dx,     \
                                              float* sums, int rows, int width, float plus) {                          \
    HEDDLE_DYNAMIC_SHARED(float, weight_sums);                                                                         \
    rms_norm_backward<T, Pack<T>>(dy, x, weight, roots, dx, sums, rows, width, plus, weight_sums);                     \
  }                                                                                                                    \
  HEDDLE_KERNEL void swiglu_##name(const T* gate, const T* up, T* y, i64 rows, int width, i64 gate_stride,             \
                                   i64 up_stride) {                                                                    \
    swiglu<T, Pack<T>>(gate, up, y, rows, width, gate_stride, up_stride);                                              \
  }                                                                                                                    \
  HEDDLE_KERNEL void swiglu_backward_##name(const T* dy, const T* gate, const T* up, T* d_both, i64 rows, int width,   \
                                            i64 dy_stride, i64 gate_stride, i64 up_stride) {                           \
    swiglu_backward<T, Pack<T>>(dy, gate, up, d_both, rows, width, dy_stride, gate_stride, up_stride);                 \
  }                                                                                                                    \
  HEDDLE_KERNEL void rotate_##name(T* x, const float* cos, const float* sin, i64 tokens, int heads, i64 stride,        \
                                   int head_dim, int first, int half, float direction) {                               \
    rotate<T, Pack<T>>(x, cos, sin, tokens, heads, stride, head_dim, first, half, direction);                          \
  }                                                                                                                    \
  HEDDLE_KERNEL void scale_##name(T* x, const float* factor, i64 count) { scale<T, Pack<T>>(x, factor, count); }       \
  HEDDLE_KERNEL void largest_##name(const T* x, float* most, i64 count) { largest<T, Pack<T>>(x, most, count); }       \
  HEDDLE_KERNEL void round_fp8_##name(const T* x, const float* most, int parts, unsigned char* value,                  \
                                      unsigned char* across, float* inverse, i64 rows, i64 columns, int e5m2) {        \
    round_fp8<T, Pack<T>>(x, most, parts, value, across, inverse, rows, columns, e5m2);                                \
  }                                                                                                                    \
  HEDDLE_KERNEL void expert_activation_##name(const T* hidden, const float* weights, T* y, i64 rows, int width,        \
                                              int kind, float factor, float limit, float shift, int interleaved) {     \
    expert_activation<T, Pack<T>>(hidden, weights, y, rows, width, Gate{kind, factor, limit, shift, interleaved});     \
  }                                                                                                                    \
  HEDDLE_KERNEL void expert_activation_backward_##name(const T* dy, const T* hidden, const float* weights,             \
                                                       T* d_hidden, float* d_weights, T* y, i64 rows, int width,       \
                                                       int kind, float factor, float limit, float shift,               \
                                                       int interleaved) {                                              \
    expert_activation_backward<T, Pack<T>>(dy, hidden, weights, d_hidden, d_weights, y, rows, width,                   \
                                           Gate{kind, factor, limit, shift, interleaved});                             \
  }                                                                                                                    \
  HEDDLE_KERNEL void combine_rows_##name(const T* rows, const i64* places, T* out, i64 tokens, int k, int width) {     \
    combine_rows<T, Pack<T>>(rows, places, out, tokens, k, width);                                                     \
  }                                                                                                                    \
  HEDDLE_KERNEL void token_loss_##name(T* logits, const i64* labels, const float* counted, float* losses,              \
                                       int vocabulary, float cap, int with_gradient) {                                 \
    token_loss<T, Pack<T>>(logits, labels, counted, losses, vocabulary, cap, with_gradient);                           \
  }

HEDDLE_FOR(float_wide, float, Vector)
HEDDLE_FOR(float_single, float, One)
HEDDLE_FOR(bf16_wide, Bf16, Vector)
HEDDLE_FOR(bf16_single, Bf16, One)

HEDDLE_KERNEL void rotate_interleaved_float(float* x, const float* cos, const float* sin, i64 tokens, int heads, i64 stride,
                                            int head_dim, int first, int half, float direction) {
  rotate_interleaved<float>(x, cos, sin, tokens, heads, stride, head_dim, first, half, direction);
}
HEDDLE_KERNEL void rotate_interleaved_bf16(Bf16* x, const float* cos, const float* sin, i64 tokens, int heads, i64 stride,
                                           int head_dim, int first, int half, float direction) {
  rotate_interleaved<Bf16>(x, cos, sin, tokens, heads, stride, head_dim, first, half, direction);
}
