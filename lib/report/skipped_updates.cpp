// Counts skipped updates.
#include "lib/report/skipped_updates.h"

#include <cmath>
#include <cstdio>

namespace heddle {

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

void SkippedUpdates::add(bool skipped, double loss) {
  all_ += skipped ? 1 : 0;
  in_a_row_ = skipped ? in_a_row_ + 1 : 0;
  ++steps_;
  loss_ = loss;
}

std::string SkippedUpdates::summary() const {
  if (all_ == 0) return "";
  return "  skipped     " + std::to_string(all_) + (all_ == 1 ? " update" : " updates") +
         ": the loss or the gradient norm was nan, inf or too large\n";
}

std::string SkippedUpdates::why_not_saved(bool ends) const {
  if (all_ > 0 && all_ >= steps_ - all_ + (ends ? 1 : 0))
    return std::to_string(all_) + " of " + std::to_string(steps_) +
           (steps_ == 1 ? " update was skipped" : " updates were skipped") +
           " because the loss or the gradient norm was nan, inf or too large";
  return std::isfinite(loss_) ? "" : "the loss is " + number_text(loss_);
}

}  // namespace heddle
