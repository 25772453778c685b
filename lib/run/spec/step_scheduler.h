// The order of a run: which step comes next, of which epoch, and whether it validates or saves.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "lib/run/recipe/sections.h"

namespace heddle {

// One optimizer step.
struct StepInfo {
  int64_t step = 0, epoch = 0;
  int64_t begin = 0, end = 0;  // its samples, as places in the order of its epoch
  bool checkpoint = false, validate = false, last = false;
  bool operator==(const StepInfo&) const = default;
};

// Throws Error{config} when the global batch does not divide into microbatches over the data-parallel ranks.
void check_split(const StepSection& section, int64_t data_ranks);

// Steps and epochs as AutoModel's StepScheduler counts them: the last step of an epoch trains on what is
// left; a run ends at max_steps or at the end of the last epoch, whichever comes first.
class StepScheduler {
 public:
  // samples: of one epoch; empty: a stream without an end. Throws Error{config} when the global batch does
  // not divide into microbatches, and when a stream has no max_steps.
  StepScheduler(const StepSection& section, int64_t data_ranks, std::optional<int64_t> samples);

  // The next step, or nothing at the end.
  std::optional<StepInfo> next();

  // The next step is this one, of the epoch that it falls into; the last at most.
  void go_on_from(int64_t step);

  StepInfo at(int64_t step) const;
  StepInfo last() const { return at(total_steps_ - 1); }  // of a run that has steps
  // Whether a checkpoint is due before the last step.
  bool saves_before_the_end() const;
  // How many of the steps from `first` on save a checkpoint.
  int64_t saves_from(int64_t first) const;
  int64_t total_steps() const { return total_steps_; }
  int64_t steps_per_epoch() const { return epoch_steps_; }
  // Whether the run ends before max_steps, because epochs run out.
  bool short_of_max_steps() const { return section_.max_steps && *section_.max_steps > total_steps_; }

 private:
  bool is_last_of_epoch(int64_t step) const;
  StepInfo moment_of(int64_t step, int64_t epoch) const;

  StepSection section_;
  int64_t samples_ = std::numeric_limits<int64_t>::max();
  int64_t epoch_steps_ = std::numeric_limits<int64_t>::max();
  int64_t total_steps_ = 0;
  int64_t checkpoint_every_ = 1;
  int64_t step_ = 0, epoch_ = 0;
};

}  // namespace heddle
