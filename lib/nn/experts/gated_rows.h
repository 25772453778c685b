// The loops of the gated units of experts, some numbers of a row at a time. Included by
// expert_activation_cpu.cpp alone, which compiles them for several generations of x86-64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "lib/nn/attention/attend_tile.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::model::gated_loops {

// y = g sigmoid(alpha g) (u + shift) weight, with g = min(gate, limit) and u = up within -limit .. limit.
template <class W>
struct Rule {
  W alpha, limit, shift;
  bool interleaved;
};

// Pointers into one row; d_y and d_hidden are set in the backward alone.
template <class Number>
struct Row {
  const Number *hidden, *d_y;
  Number *d_hidden, *y;
  int64_t width;
  Wide<Number> weight;
};

// The largest whole x for which e^x and e^-x are normal numbers.
template <class W>
inline constexpr W kLargestPower = std::is_same_v<W, double> ? 708 : 87;

// x = its sigmoid; 0 below -kLargestPower.
template <class Set>
HEDDLE_INLINE void apply_sigmoid(typename Set::Vector& x) {
  using Vector = typename Set::Vector;
  const Vector zero{}, most = zero + kLargestPower<typename Set::Number>;
  Vector power = -x;
  power = power > most ? most : power;
  tile::exponential<Set>(power);
  x = x < -most ? zero : 1 / (1 + power);
}

// Sums of the weight's gradient, one for each lane, and their total in a fixed order for every instruction
// set.
template <class Set>
struct Sums {
  static constexpr int64_t kCount = kFloats / Set::kLanes;
  typename Set::Vector lanes[kCount] = {};

  HEDDLE_INLINE typename Set::Number total() const {
    alignas(64) typename Set::Number sums[kFloats];
    for (int64_t i = 0; i < kCount; ++i) tile::vector_at<Set>(sums + i * Set::kLanes) = lanes[i];
    for (int64_t half = kFloats / 2; half > 0; half /= 2)
      for (int64_t i = 0; i < half; ++i) sums[i] += sums[half + i];
    return sums[0];
  }
};

// kFloats numbers of each; backward alone: the last three.
template <class W>
struct Place {
  const W *gate, *up;
  W* y;
  const W* d_y;
  W *d_gate, *d_up;
};

template <class Set, bool Backward>
HEDDLE_INLINE void compute_lanes(const Rule<typename Set::Number>& rule, typename Set::Number weight,
                                 const Place<typename Set::Number>& place, Sums<Set>& sums) {
  using Vector = typename Set::Vector;
  const Vector limit = Vector{} + rule.limit, zero{};
  for (int64_t i = 0; i < Sums<Set>::kCount; ++i) {
    const int64_t lane = i * Set::kLanes;
    const Vector gate = tile::vector_at<Set>(place.gate + lane), up = tile::vector_at<Set>(place.up + lane);
    const Vector g = gate > limit ? limit : gate;
    // One comparison at a time: GCC 12 computes a choice by two element by element.
    const Vector below = up > limit ? limit : up;
    const Vector within = below < -limit ? -limit : below, factor = within + rule.shift;
    Vector share = g * rule.alpha;
    apply_sigmoid<Set>(share);
    const Vector gated = g * share;
    tile::vector_at<Set>(place.y + lane) = gated * factor * weight;
    if constexpr (Backward) {
      const Vector d_y = tile::vector_at<Set>(place.d_y + lane), d = d_y * weight;
      const Vector d_gate = d * share * factor * (1 + g * rule.alpha * (1 - share));
      const Vector beyond = up - within;  // nan is not beyond the limit, as in ATen's clamp
      tile::vector_at<Set>(place.d_up + lane) = beyond * beyond > zero ? zero : d * gated;
      tile::vector_at<Set>(place.d_gate + lane) = gate > limit ? zero : d_gate;
      sums.lanes[i] += d_y * gated * factor;
    }
  }
}

// Computes a row in scratch: of another type, interleaved, or of fewer than kFloats numbers.
template <class Set, bool Backward, class Number>
HEDDLE_INLINE void compute_apart(const Rule<Wide<Number>>& rule, const Row<Number>& row, int64_t begin,
                                 Sums<Set>& sums) {
  using W = Wide<Number>;
  alignas(64) W in[3][kFloats] = {}, out[3][kFloats];
  const int64_t count = std::min(kFloats, row.width - begin), step = rule.interleaved ? 2 : 1;
  const int64_t gate = begin * step, up = gate + (rule.interleaved ? 1 : row.width);
  for (int64_t i = 0; i < count; ++i) {
    in[0][i] = static_cast<W>(row.hidden[gate + i * step]);
    in[1][i] = static_cast<W>(row.hidden[up + i * step]);
    if constexpr (Backward) in[2][i] = static_cast<W>(row.d_y[begin + i]);
  }
  compute_lanes<Set, Backward>(rule, row.weight, {in[0], in[1], out[0], in[2], out[1], out[2]}, sums);
  for (int64_t i = 0; i < count; ++i) {
    row.y[begin + i] = static_cast<Number>(out[0][i]);
    if constexpr (Backward) {
      row.d_hidden[gate + i * step] = static_cast<Number>(out[1][i]);
      row.d_hidden[up + i * step] = static_cast<Number>(out[2][i]);
    }
  }
}

// Returns the gradient of the weight, where there is one.
template <class Set, bool Backward, class Number>
HEDDLE_INLINE Wide<Number> compute_row(const Rule<Wide<Number>>& rule, const Row<Number>& row) {
  Sums<Set> sums;
  int64_t begin = 0;
  if constexpr (std::is_same_v<Number, typename Set::Number>)
    for (; !rule.interleaved && begin + kFloats <= row.width; begin += kFloats) {
      const Number* const gate = row.hidden + begin;
      Number* const d_gate = Backward ? row.d_hidden + begin : nullptr;
      compute_lanes<Set, Backward>(
          rule, row.weight,
          {gate, gate + row.width, row.y + begin, Backward ? row.d_y + begin : nullptr, d_gate,
           Backward ? d_gate + row.width : nullptr},
          sums);
    }
  for (; begin < row.width; begin += kFloats) compute_apart<Set, Backward>(rule, row, begin, sums);
  return Backward ? sums.total() : 0;
}

}  // namespace heddle::model::gated_loops
