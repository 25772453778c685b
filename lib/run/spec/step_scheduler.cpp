// Sequence of a run's steps, with their epochs, validations and checkpoints.
#include "lib/run/spec/step_scheduler.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "heddle/base/error.h"

namespace heddle {
namespace {

constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

}  // namespace

void check_split(const StepSection& section, int64_t data_ranks) {
  if (section.global_batch_size % (section.local_batch_size * data_ranks) == 0) return;
  throw Error(ErrorCode::config, section.where,
              "global_batch_size (" + std::to_string(section.global_batch_size) +
                  ") must be divisible by local_batch_size * dp_size (" +
                  std::to_string(section.local_batch_size) + " * " + std::to_string(data_ranks) + ")",
              "set global_batch_size to a multiple of " +
                  std::to_string(section.local_batch_size * data_ranks) +
                  ", the samples of one microbatch on every data-parallel rank");
}

StepScheduler::StepScheduler(const StepSection& section, int64_t data_ranks, std::optional<int64_t> samples)
    : section_(section), step_(section.start_step), epoch_(section.start_epoch) {
  check_split(section, data_ranks);
  if (samples) {
    samples_ = *samples;
    epoch_steps_ = (*samples + section.global_batch_size - 1) / section.global_batch_size;
  } else if (!section.max_steps) {
    throw Error(ErrorCode::config, section.where,
                "Cannot infer total steps for an iterable/streaming dataset; set step_scheduler.max_steps.");
  }
  const bool endless = !samples || !section.num_epochs || *section.num_epochs > kEndless / epoch_steps_;
  const int64_t all_epochs = endless ? kEndless : *section.num_epochs * epoch_steps_;
  // num_epochs and max_steps are both null: ten epochs.
  const int64_t all = section.num_epochs || section.max_steps ? all_epochs : 10 * epoch_steps_;
  total_steps_ = std::min(all, section.max_steps.value_or(kEndless));
  checkpoint_every_ =
      section.ckpt_every_steps.value_or(samples ? epoch_steps_ : std::max<int64_t>(1, total_steps_ / 2));
}

bool StepScheduler::is_last_of_epoch(int64_t step) const {
  return epoch_steps_ != kEndless && step % epoch_steps_ == epoch_steps_ - 1;
}

StepInfo StepScheduler::step_info(int64_t step, int64_t epoch) const {
  StepInfo info;
  info.step = step;
  info.epoch = epoch;
  const int64_t in_epoch = epoch_steps_ == kEndless ? step : step % epoch_steps_;
  info.begin = in_epoch * section_.global_batch_size;
  info.end = std::min(info.begin + section_.global_batch_size, samples_);
  info.last = step + 1 == total_steps_;
  info.checkpoint = info.last || step % checkpoint_every_ == checkpoint_every_ - 1 ||
                    (section_.save_checkpoint_every_epoch && is_last_of_epoch(step));
  const bool due =
      section_.val_every_steps && step % *section_.val_every_steps == *section_.val_every_steps - 1;
  info.validate = due || (section_.validate_on_checkpoint && info.checkpoint);
  return info;
}

std::optional<StepInfo> StepScheduler::next() {
  if (step_ >= total_steps_) return std::nullopt;
  const StepInfo info = step_info(step_, epoch_);
  if (is_last_of_epoch(step_)) ++epoch_;
  ++step_;
  return info;
}

void StepScheduler::go_on_from(int64_t step) {
  step_ = std::min(step, total_steps_);
  epoch_ = epoch_steps_ == kEndless ? epoch_ : step_ / epoch_steps_;
}

StepInfo StepScheduler::at(int64_t step) const {
  return step_info(step, epoch_steps_ == kEndless ? epoch_ : step / epoch_steps_);
}

int64_t StepScheduler::saves_from(int64_t first) const {
  if (first >= total_steps_) return 0;
  const auto ends = [&](int64_t length) { return total_steps_ / length - first / length; };
  int64_t count = ends(checkpoint_every_);
  bool last_counts = total_steps_ % checkpoint_every_ == 0;
  if (section_.save_checkpoint_every_epoch) {
    count += ends(epoch_steps_);
    last_counts = last_counts || total_steps_ % epoch_steps_ == 0;
    const int64_t factor = checkpoint_every_ / std::gcd(checkpoint_every_, epoch_steps_);
    // counted by both schedules
    if (factor <= total_steps_ / epoch_steps_) count -= ends(factor * epoch_steps_);
  }
  return count + (last_counts ? 0 : 1);
}

bool StepScheduler::saves_before_the_end() const {
  return checkpoint_every_ < total_steps_ ||
         (section_.save_checkpoint_every_epoch && epoch_steps_ < total_steps_);
}

}  // namespace heddle
