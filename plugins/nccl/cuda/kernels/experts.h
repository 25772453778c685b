// Activation between the two products of an expert, and the sum of each token's rows.
#pragma once

#include "device.h"

// Kinds in the order of heddle::model::ExpertActivation::Kind.
enum GateKind { kSwiglu, kLimitedSwiglu, kClampedSwiglu, kGeglu, kGegluTanh, kRelu2, kSitu };

// factor and limit: parameters of the kind (SiTU: beta and bound); kSwiglu ignores them. interleaved: columns
// of gate and up alternate. Otherwise the gate's columns come first.
struct Gate {
  int kind;
  float factor, limit, shift;
  int interleaved;
};

// y and its derivatives with respect to gate and up.
struct Gated {
  float y, by_gate, by_up;
};

// Clamps x, and keeps NaN.
HEDDLE_DEVICE float between(float x, float low, float high) {
  return x > high ? high : x < low ? low : x;
}

// g s (up + shift) with s = sigmoid(factor g).
HEDDLE_DEVICE Gated sigmoid_gate(float g, float up, float factor, float shift) {
  const float s = 1 / (1 + expf(-factor * g)), gate = g * s, shifted = up + shift;
  return {gate * shifted, shifted * s * (1 + factor * g * (1 - s)), gate};
}

HEDDLE_DEVICE Gated clamped_gate(const Gate& form, float g, float up) {
  Gated out = sigmoid_gate(between(g, -infinity(), form.limit), between(up, -form.limit, form.limit),
                           form.factor, form.shift);
  if (!(g <= form.limit)) out.by_gate *= 0;
  if (!(fabsf(up) <= form.limit)) out.by_up *= 0;
  return out;
}

HEDDLE_DEVICE Gated limited_gate(const Gate& form, float g, float up) {
  const float u = between(up, -form.limit, form.limit);
  const Gated out = sigmoid_gate(g, u, 1, 0);
  const float within = between(out.by_up, -infinity(), form.limit);
  return {within * u, out.by_gate * (out.by_up <= form.limit ? 1.0F : 0.0F),
          within * (u == up ? 1.0F : 0.0F)};
}

HEDDLE_DEVICE Gated gelu_gate(float g, float up) {
  constexpr float kRootOfHalf = 0.70710678F, kDensity = 0.39894228F;  // 1 / sqrt(2), 1 / sqrt(2 pi)
  const float below = (erff(g * kRootOfHalf) + 1) * 0.5F, gate = g * below;
  return {gate * up, (below + g * expf(g * g * -0.5F) * kDensity) * up, gate};
}

HEDDLE_DEVICE Gated gelu_tanh_gate(float g, float up) {
  constexpr float kCubic = 0.044715F, kInner = 0.79788456F;  // sqrt(2 / pi)
  const float square = g * g, t = tanhf(g * (square * kCubic + 1) * kInner);
  const float below = (t + 1) * 0.5F, gate = g * below;
  const float slope = g * (1 - t * t) * (square * (3 * kCubic) + 1) * (kInner * 0.5F);
  return {gate * up, (below + slope) * up, gate};
}

HEDDLE_DEVICE Gated situ_gate(const Gate& form, float g, float up) {
  const float bounded = tanhf(g / form.factor), open = 1 / (1 + expf(-g)),
              gate = bounded * open * form.factor;
  const float by_gate = open * (1 - bounded * bounded) + gate * (1 - open);
  if (form.limit == 0) return {gate * up, by_gate * up, gate};
  const float part = tanhf(up / form.limit), u = part * form.limit;
  return {gate * u, by_gate * u, gate * (1 - part * part)};
}

HEDDLE_DEVICE Gated gated(const Gate& form, float g, float up) {
  switch (form.kind) {
    case kLimitedSwiglu:
      return limited_gate(form, g, up);
    case kClampedSwiglu:
      return clamped_gate(form, g, up);
    case kGeglu:
      return gelu_gate(g, up);
    case kGegluTanh:
      return gelu_tanh_gate(g, up);
    case kRelu2:
      return {g < 0 ? 0 : g * g, g < 0 ? 0 : 2 * g, 0};
    case kSitu:
      return situ_gate(form, g, up);
    default:
      return sigmoid_gate(g, up, 1, 0);
  }
}

// Columns of gate and up in a row of hidden.
template <class T, class Pack>
HEDDLE_DEVICE void load_gate(const Gate& form, const T* row, int width, int column, Pack& g, Pack& up) {
  constexpr int kSize = Pack::kSize;
  if (!form.interleaved) {
    g = load<Pack>(row + column);
    if (form.kind != kRelu2) up = load<Pack>(row + width + column);
    return;
  }
  const Pack first = load<Pack>(row + 2 * column), second = load<Pack>(row + 2 * column + kSize);
  for (int j = 0; j < kSize; ++j) {
    g.at[j] = 2 * j < kSize ? first.at[2 * j % kSize] : second.at[2 * j % kSize];
    up.at[j] = 2 * j + 1 < kSize ? first.at[(2 * j + 1) % kSize] : second.at[(2 * j + 1) % kSize];
  }
}

template <class T, class Pack>
HEDDLE_DEVICE void store_gate(const Gate& form, T* row, int width, int column, const Pack& g,
                              const Pack& up) {
  constexpr int kSize = Pack::kSize;
  if (!form.interleaved) {
    store(row + column, g);
    if (form.kind != kRelu2) store(row + width + column, up);
    return;
  }
  Pack first, second;
  for (int j = 0; j < kSize; ++j) {
    first.at[j] = j % 2 == 0 ? g.at[j / 2] : up.at[j / 2];
    second.at[j] = (kSize + j) % 2 == 0 ? g.at[(kSize + j) / 2] : up.at[(kSize + j) / 2];
  }
  store(row + 2 * column, first);
  store(row + 2 * column + kSize, second);
}

// The rows of a warp: the first row, and the distance to the next row.
struct WarpRows {
  i64 first, step;
};

HEDDLE_DEVICE WarpRows warp_rows() {
  constexpr int kWarps = kThreads / kWarp;
  return {static_cast<i64>(blockIdx.x) * kWarps + threadIdx.x / kWarp, static_cast<i64>(gridDim.x) * kWarps};
}

// y [rows, width] = activation(hidden) * weights of the rows. hidden: [rows, 2 * width], or [rows, width] for
// kRelu2.
template <class T, class Pack>
HEDDLE_DEVICE void expert_activation(const T* hidden, const float* weights, T* y, i64 rows, int width,
                                     const Gate& form) {
  const int columns = form.kind == kRelu2 ? 1 : 2;
  const WarpRows mine = warp_rows();
  for (i64 row = mine.first; row < rows; row += mine.step)
    for (int column = threadIdx.x % kWarp * Pack::kSize; column < width; column += kWarp * Pack::kSize) {
      Pack g, up = {}, out;
      load_gate<T, Pack>(form, hidden + row * columns * width, width, column, g, up);
      HEDDLE_UNROLL
      for (int j = 0; j < Pack::kSize; ++j)
        narrow(gated(form, wide(g.at[j]), wide(up.at[j])).y * weights[row], out.at[j]);
      store(y + row * width + column, out);
    }
}

// Computes d_hidden and d_weights, and y again.
template <class T, class Pack>
HEDDLE_DEVICE void expert_activation_backward(const T* dy, const T* hidden, const float* weights, T* d_hidden,
                                              float* d_weights, T* y, i64 rows, int width, const Gate& form) {
  const int columns = form.kind == kRelu2 ? 1 : 2, lane = threadIdx.x % kWarp;
  const WarpRows mine = warp_rows();
  for (i64 row = mine.first; row < rows; row += mine.step) {
    float sum = 0;
    for (int column = lane * Pack::kSize; column < width; column += kWarp * Pack::kSize) {
      Pack g, up = {}, out, d_gate, d_up = {};
      load_gate<T, Pack>(form, hidden + row * columns * width, width, column, g, up);
      const Pack d = load<Pack>(dy + row * width + column);
      HEDDLE_UNROLL
      for (int j = 0; j < Pack::kSize; ++j) {
        const Gated of = gated(form, wide(g.at[j]), wide(up.at[j]));
        const float given = wide(d.at[j]), scaled = given * weights[row];
        sum += given * of.y;
        narrow(of.y * weights[row], out.at[j]);
        narrow(scaled * of.by_gate, d_gate.at[j]);
        narrow(scaled * of.by_up, d_up.at[j]);
      }
      store(y + row * width + column, out);
      store_gate<T, Pack>(form, d_hidden + row * columns * width, width, column, d_gate, d_up);
    }
    for (int apart = kWarp / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    if (lane == 0) d_weights[row] = sum;
  }
}

// out [tokens, width]: the sum of the rows `places` [tokens, k] in order; -1: no row.
template <class T, class Pack>
HEDDLE_DEVICE void combine_rows(const T* rows, const i64* places, T* out, i64 tokens, int k, int width) {
  const i64 packs = width / Pack::kSize, all = tokens * packs;
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < all;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    const i64 token = i / packs, column = i % packs * Pack::kSize;
    float sum[Pack::kSize] = {};
    for (int choice = 0; choice < k; ++choice) {
      const i64 place = places[token * k + choice];
      if (place < 0) continue;
      const Pack part = load<Pack>(rows + place * width + column);
      for (int j = 0; j < Pack::kSize; ++j) sum[j] += wide(part.at[j]);
    }
    Pack total;
    for (int j = 0; j < Pack::kSize; ++j) narrow(sum[j], total.at[j]);
    store(out + token * width + column, total);
  }
}
