// Learning rate and weight decay per step.
#pragma once

#include <cstdint>
#include <optional>

#include "heddle/engine/engine.h"
#include "lib/run/recipe/sections.h"

namespace heddle {

// Linear warmup, then cosine decay (Loshchilov and Hutter 2017), linear, constant, inverse square root, or
// WSD (warmup, stable, decay: Hu et al. 2024), as in Megatron's parameter scheduler. A pure function of the
// step.
class LrSchedule {
 public:
  // Defaults: warmup over a tenth of the run, at most 1000 steps, from a tenth of `optimizer.lr`; decay to a
  // hundredth of it at the last step. Without a section, the rate is constant. Throws Error{config}.
  LrSchedule(const std::optional<LrSection>& section, const engine::Rates& optimizer, int64_t total_steps);

  double lr(int64_t step) const;  // step counts from 0
  double weight_decay(int64_t step) const;

 private:
  enum class Style { constant, linear, cosine, inverse_square_root, wsd };
  enum class Tail { linear, cosine, exponential, minus_sqrt };
  void check(const LrSection& section) const;
  double decay(int64_t step) const;  // 1 at the end of the warmup, 0 at the last step of the decay

  Style style_ = Style::constant;
  Tail tail_ = Tail::linear;
  int64_t warmup_ = 0, decay_steps_ = 1, tail_steps_ = 1;
  double init_ = 0, max_ = 0, min_ = 0;
  Style wd_style_ = Style::constant;
  double start_wd_ = 0, end_wd_ = 0;
  int64_t wd_steps_ = 1;
};

}  // namespace heddle
