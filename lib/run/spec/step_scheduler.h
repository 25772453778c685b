// Sequence of a run's steps, with their epochs, validations and checkpoints.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "lib/run/recipe/sections.h"

namespace heddle {

// One optimizer step.
struct StepInfo {
  int64_t step = 0, epoch = 0;
  int64_t begin = 0, end = 0;  // sample positions in the order of the epoch
  bool checkpoint = false, validate = false, last = false;
  bool operator==(const StepInfo&) const = default;
};

// Throws Error{config} if the global batch cannot be split into microbatches over the data-parallel ranks.
void check_split(const StepSection& section, int64_t data_ranks);

// Counts steps and epochs as AutoModel's StepScheduler: the last step of an epoch trains on the remaining
// samples, and a run ends at max_steps or after the last epoch, whichever comes first.
class StepScheduler {
 public:
  // samples: number per epoch; empty: an endless stream. Throws Error{config} if the global batch cannot be
  // split into microbatches, and for a stream without max_steps.
  StepScheduler(const StepSection& section, int64_t data_ranks, std::optional<int64_t> samples);

  // Returns the next step, or nothing at the end.
  std::optional<StepInfo> next();

  // Makes `step` the next step, in the epoch that contains it; at most the last step.
  void go_on_from(int64_t step);

  StepInfo at(int64_t step) const;
  StepInfo last() const { return at(total_steps_ - 1); }  // of a run with at least one step
  // Whether a checkpoint is due before the last step.
  bool saves_before_the_end() const;
  // Returns the number of steps from `first` on that save a checkpoint.
  int64_t saves_from(int64_t first) const;
  int64_t total_steps() const { return total_steps_; }
  int64_t steps_per_epoch() const { return epoch_steps_; }
  // Whether the epochs end before max_steps.
  bool short_of_max_steps() const { return section_.max_steps && *section_.max_steps > total_steps_; }

 private:
  bool is_last_of_epoch(int64_t step) const;
  StepInfo step_info(int64_t step, int64_t epoch) const;

  StepSection section_;
  int64_t samples_ = std::numeric_limits<int64_t>::max();
  int64_t epoch_steps_ = std::numeric_limits<int64_t>::max();
  int64_t total_steps_ = 0;
  int64_t checkpoint_every_ = 1;
  int64_t step_ = 0, epoch_ = 0;
};

}  // namespace heddle
