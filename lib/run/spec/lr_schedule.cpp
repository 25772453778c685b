// Learning rate and weight decay per step.
#include "lib/run/spec/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <string>

#include "heddle/base/error.h"

namespace heddle {
namespace {

// Half a cosine, from 1 at 0 to 0 at 1.
double cosine(double ratio) {
  return 0.5 * (std::cos(std::numbers::pi * ratio) + 1.0);
}

std::string text_of(double value) {
  char shortest[32];
  std::snprintf(shortest, sizeof(shortest), "%g", value);
  return shortest;
}

}  // namespace

LrSchedule::LrSchedule(const std::optional<LrSection>& given, const engine::Rates& optimizer,
                       int64_t total_steps) {
  init_ = max_ = min_ = optimizer.lr;
  start_wd_ = end_wd_ = optimizer.weight_decay;
  if (!given) return;
  const LrSection& section = *given;
  const std::string& word = section.lr_decay_style;
  style_ = word == "linear"     ? Style::linear
           : word == "constant" ? Style::constant
           : word == "WSD"      ? Style::wsd
           : word == "cosine"   ? Style::cosine
                                : Style::inverse_square_root;
  const std::string tail = section.lr_wsd_decay_style.value_or("linear");
  tail_ = tail == "cosine"        ? Tail::cosine
          : tail == "exponential" ? Tail::exponential
          : tail == "minus_sqrt"  ? Tail::minus_sqrt
                                  : Tail::linear;
  wd_style_ = section.wd_incr_style == "linear"   ? Style::linear
              : section.wd_incr_style == "cosine" ? Style::cosine
                                                  : Style::constant;
  warmup_ = section.lr_warmup_steps.value_or(std::min<int64_t>(1000, total_steps / 10));
  decay_steps_ = section.lr_decay_steps.value_or(total_steps);
  tail_steps_ = section.wsd_decay_steps.value_or(1);
  init_ = section.init_lr.value_or(0.1 * optimizer.lr);
  max_ = section.max_lr.value_or(optimizer.lr);
  min_ = section.min_lr.value_or(0.01 * optimizer.lr);
  start_wd_ = section.start_wd.value_or(optimizer.weight_decay);
  end_wd_ = section.end_wd.value_or(optimizer.weight_decay);
  wd_steps_ = section.wd_incr_steps.value_or(total_steps);
  check(section);
}

void LrSchedule::check(const LrSection& section) const {
  Errors errors;
  const auto require = [&](bool holds, const std::string& what, const std::string& hint = "") {
    if (!holds) errors.add(Error(ErrorCode::config, section.where, what, hint));
  };
  require(min_ >= 0, "min_lr must be 0 or more, got " + text_of(min_));
  require(max_ >= min_, "max_lr (" + text_of(max_) + ") must not be below min_lr (" + text_of(min_) + ")");
  require(init_ <= max_, "init_lr (" + text_of(init_) + ") must not be above max_lr (" + text_of(max_) + ")");
  require(warmup_ < decay_steps_,
          "lr_warmup_steps (" + std::to_string(warmup_) + ") must be below lr_decay_steps (" +
              std::to_string(decay_steps_) + ")" +
              (section.lr_decay_steps ? "" : ", by default the length of the run"),
          "decrease lr_warmup_steps or make the run longer; --lr_scheduler none keeps the learning rate "
          "constant");
  require(start_wd_ >= 0 && end_wd_ >= start_wd_, "end_wd (" + text_of(end_wd_) +
                                                      ") must not be below start_wd (" + text_of(start_wd_) +
                                                      "), nor start_wd below 0");
  require(wd_style_ != Style::constant || start_wd_ >= end_wd_,
          "wd_incr_style constant needs start_wd and end_wd to be equal");
  errors.raise();
}

double LrSchedule::decay(int64_t step) const {
  if (style_ == Style::wsd) {
    const int64_t begin = decay_steps_ - tail_steps_;
    if (step <= begin) return 1.0;
    const double ratio = static_cast<double>(step - begin) / static_cast<double>(tail_steps_);
    switch (tail_) {
      case Tail::linear:
        return 1.0 - ratio;
      case Tail::cosine:
        return cosine(ratio);
      case Tail::exponential:
        return 2.0 * std::pow(0.5, ratio) - 1.0;
      case Tail::minus_sqrt:
        return 1.0 - std::sqrt(ratio);
    }
  }
  const double ratio = static_cast<double>(step - warmup_) / static_cast<double>(decay_steps_ - warmup_);
  return style_ == Style::cosine ? cosine(ratio) : 1.0 - ratio;
}

double LrSchedule::lr(int64_t step) const {
  if (warmup_ > 0 && step <= warmup_)
    return init_ + (max_ - init_) * static_cast<double>(step) / static_cast<double>(warmup_);
  if (style_ == Style::constant) return max_;
  if (step > decay_steps_) return min_;
  if (style_ == Style::inverse_square_root)
    return std::max(min_, max_ * std::sqrt(static_cast<double>(std::max<int64_t>(warmup_, 1))) /
                              std::sqrt(static_cast<double>(std::max<int64_t>(step, 1))));
  return min_ + decay(step) * (max_ - min_);
}

double LrSchedule::weight_decay(int64_t step) const {
  if (step > wd_steps_ || wd_style_ == Style::constant) return end_wd_;
  const double ratio = static_cast<double>(step) / static_cast<double>(wd_steps_);
  return start_wd_ + (wd_style_ == Style::linear ? ratio : cosine(1.0 - ratio)) * (end_wd_ - start_wd_);
}

}  // namespace heddle
