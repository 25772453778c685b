// A step of a run and what is due after it: validation, checkpoints, the end.
#include <chrono>

#include <utility>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/report/loss_parts.h"
#include "lib/run/checkpointing/skipped.h"
#include "lib/run/loop/build.h"
#include "lib/run/loop/run.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Error with_moment(const Error& error, const std::string& moment) {
  return {error.code(), error.where(), moment + ": " + error.message(), error.hint()};
}

}  // namespace

// Returns the signal that ends the run after this step, or kUnreadable, or 0. Throws, on every rank after the
// same step, where a save has failed and where too many updates were skipped.
int Run::end_of_step(const StepInfo& info) {
  int answer = stop_.end();
  if (answer != 0) settle();
  if (answer == kMayEndSkipping)
    answer = stop_.now(journal_ && journal_->skipped().end_the_run() ? kSkippedTooMany : 0);
  if (answer == kSkippedTooMany) throw too_many_skipped(run_, info);
  if (answer != kSavingFailed) return answer;
  saver_->finish();
  return 0;
}

// Runs a step and what is due after it. Returns the signal that ends the run here, or kUnreadable, or 0.
int Run::run_step(const StepInfo& info, const std::optional<StepInfo>& next) {
  if (saver_) report_saved();
  losses_ = {};
  train_one(info, next);
  int signal = end_of_step(info);
  // A step whose checkpoint has the name of another branch's is not the last one: the next is.
  const bool is_taken = run_.taken.contains(info.step);
  const auto unless_taken = [&](int request) { return is_taken && request != kUnreadable ? 0 : request; };
  signal = unless_taken(signal);
  const bool ends = info.last || signal != 0;
  const bool is_good = !(ends || info.checkpoint) || may_save(info, ends);
  if (signal == 0 && info.validate && (!run_.validation.empty() || samples_))
    signal = unless_taken(validate(info));
  bool is_saved = false;
  const auto save_now = [&] {
    if (saver_ && !is_taken) save(info);
    is_saved = true;
  };
  if (is_good && (signal != 0 || info.checkpoint)) save_now();
  // What came while all waited for a validation or for the disk ends the run here, not a step later.
  if (signal == 0 && (info.validate || info.checkpoint)) signal = unless_taken(stop_.now());
  if (signal != 0 && !is_saved && may_save(info, true)) save_now();
  return signal;
}

// A step whose loss is not finite, or after which more updates were skipped than made, is not saved: what was
// saved before stays the newest. Throws on every rank where the run `ends` with it.
bool Run::may_save(const StepInfo& info, bool ends) {
  settle();
  try {
    const std::string key = "may save/" + std::to_string(info.step) + (ends ? " at the end" : "");
    checkpoint::on_first(model_.mesh.rendezvous(), key, [&] {
      const SkippedUpdates& skipped = journal_->skipped();
      if (!skipped.why_not_saved(ends).empty()) throw not_saved(run_, info, skipped, ends);
    });
    return true;
  } catch (const Error& error) {
    if (ends || error.code() != ErrorCode::diverged) throw;
    if (journal_) journal_->warn(error.message());
    return false;
  }
}

void Run::save(const StepInfo& info) {
  settle();
  // Throws where a collective was given up: what it left is not saved.
  if (model_.device) model_.device->synchronize();
  losses_.training = loss_.item<double>();
  // While updates are skipped, the older checkpoints may be the last good ones.
  saver_->save(model_, step_, info, losses_, journal_ && journal_->skipped().in_a_row() > 0);
  report_saved();
  if (saves_model(run_.recipe.checkpoint, info)) saved_ = directory_of(run_, info) / "model" / "consolidated";
}

// A line for each checkpoint that has become complete; with checkpoint.is_async that is some steps later.
void Run::report_saved() {
  for (const StepInfo& info : saver_->published())
    if (journal_) journal_->saved(info, directory_of(run_, info));
}

// Of the first step: a data set without labels trains nothing.
void Run::refuse_no_labels(const StepInfo& info) const {
  throw Error(ErrorCode::input, run_.recipe.dataset->where,
              "none of the " + std::to_string(info.end - info.begin) +
                  " samples of the first step has a token with a label",
              "look at the data: a label of -100 counts nothing, and a sample of one token has none");
}

// Reads the batch of a step. Throws Error with the row and the step.
void Run::read_ahead(const StepInfo& info) {
  Batches& batches = batches_[static_cast<size_t>(info.step % 2)];
  try {
    next_batch_ = batches.read(order_of(run_, info.epoch), info.begin, info.end, step_of(run_, whole_, info));
  } catch (const Error& error) {
    throw with_moment(error, "step " + std::to_string(info.step + 1));
  }
}

// Trains one step. The batch of the next one is read before, so that all ranks can save this step and end
// where one of them cannot read it: the agreement about the end goes beside the step.
void Run::train_one(const StepInfo& info, const std::optional<StepInfo>& next) {
  const auto begin = Clock::now();
  trace_.begin(step_, info.step);
  const double lr = run_.rates.lr(info.step);
  if (next_batch_.empty()) read_ahead(info);
  const std::span<const Batch> microbatches = std::exchange(next_batch_, {});
  try {
    if (next) read_ahead(*next);
  } catch (const Error& error) {
    unreadable_ = error;
  }
  const bool may_end = journal_ && journal_->skipped().may_end_with_the_next(journal_->unlogged());
  stop_.begin(saver_ && saver_->has_failed() ? kSavingFailed
              : unreadable_                  ? kUnreadable
              : may_end                      ? kMayEndSkipping
                                             : 0);
  const StepReport report = step_.run(microbatches, lr, run_.rates.weight_decay(info.step));
  if (std::exchange(begins_, false) && report.label_tokens == 0) refuse_no_labels(info);
  loss_ = report.loss;
  trace_.end(step_, info.step, model_.stages, model_.mesh);
  if (!journal_) return;
  const int64_t together = run_.recipe.steps.log_remote_every_steps;
  if (model_.device && together > 1 && !step_.unsettled()) {
    if (journal_->unlogged() == 0) kept_since_ = begin;
    journal_->keep({info, report, lr, 0, peak_memory()});
    if (journal_->unlogged() >= together) log();
    return;
  }
  if (model_.device) model_.device->synchronize();  // the host runs ahead; the time is the step's
  journal_->trained({info, report, lr, seconds_since(begin), peak_memory()}, !step_.unsettled());
}

// The steps that the journal keeps. On a device this is the one place where the host waits for a step.
void Run::log() {
  if (!journal_ || journal_->unlogged() == 0) return;
  if (!kept_since_) return journal_->log();
  model_.device->synchronize();
  journal_->log(seconds_since(*std::exchange(kept_since_, std::nullopt)));
}

// Before anything but the next step looks at parameters or numbers.
void Run::settle() {
  step_.settle();
  log();
}

double Run::peak_memory() const {
  return model_.device ? static_cast<double>(model_.device->memory().peak) / (1 << 30) : peak_->gib();
}

// Computes the mean loss over all label tokens of each set, in groups of a global batch. A signal, or a batch
// that cannot be read, stops it. Returns the signal, or kUnreadable, or 0.
int Run::validate(const StepInfo& info) {
  settle();
  const int64_t group = run_.recipe.steps.global_batch_size;
  for (size_t i = 0; i < validation_.size(); ++i) {
    if (losses_.validation.count(run_.validation[i].name) != 0) continue;  // by the run before
    const int64_t all = run_.validation[i].dataset.size(),
                  samples = all - all % run_.recipe.whole_validation_samples;
    const SampleOrder order(all, Shuffle::off, 0, 0);
    double sum = 0;
    int64_t tokens = 0;
    LossParts parts;
    for (int64_t begin = 0; begin < samples; begin += group) {
      if (journal_) journal_->validating(run_.validation[i].name, begin, samples);
      std::span<const Batch> microbatches;
      try {
        microbatches =
            validation_[i].read(order, begin, std::min(begin + group, samples), {.step = info.step + 1});
      } catch (const Error& error) {
        unreadable_ = with_moment(error, "the validation after step " + std::to_string(info.step + 1));
      }
      if (const int signal = stop_.now(unreadable_ ? kUnreadable : 0)) return signal;
      const StepReport report = step_.evaluate(microbatches);
      sum += report.loss.item<double>() * static_cast<double>(report.label_tokens);
      tokens += report.label_tokens;
      if (journal_) parts.add(report);
    }
    if (tokens == 0)
      throw Error(
          ErrorCode::input,
          "validation_dataset" + (run_.validation[i].name.empty() ? "" : "_" + run_.validation[i].name),
          "none of its " + std::to_string(samples) + " samples has a token with a label",
          "give a set with labels other than -100");
    losses_.validation[run_.validation[i].name] = sum / static_cast<double>(tokens);
    if (journal_)
      journal_->validated(info, {run_.validation[i].name, sum / static_cast<double>(tokens), tokens,
                                 run_.rates.lr(info.step), parts.means()});
  }
  return samples_ ? sample(info) : 0;
}

// A signal that came meanwhile ends the run.
int Run::sample(const StepInfo& info) {
  for (const SampleRecord& one : samples_->answers(info))
    if (journal_) journal_->sampled(one);
  return stop_.now();
}

}  // namespace heddle
