// One rank of a run: from the built model to the last line.
#include "trainer/loop/run.h"

#include <algorithm>
#include <iostream>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "trainer/loop/skipped.h"
#include "trainer/metrics/amounts.h"
#include "trainer/metrics/banner.h"
#include "trainer/metrics/mfu.h"
#include "trainer/models/freeze.h"
#include "trainer/saves/keep.h"
#include "trainer/saves/resume.h"

namespace heddle {

Run::Run(const Job& job, PluginRegistry& plugins, Rendezvous& meeting, StopWish& wish)
    : job_(job),
      trace_(job.trace, meeting, job.resume ? job.resume->position.step : 0,
             job.pipeline ? job.pipeline->schedule : ""),
      model_(build(plugins, trace_.meeting())),
      step_(model_.stages, model_.mesh, step_config()),
      batches_(job.dataset, split(), job.model.spec->facts().vocabulary),
      scheduler_(job.scheduler),
      wish_(wish),
      stop_(meeting, wish) {
  const bool saves = job.recipe.checkpoint.enabled;
  if (saves) checkpoint::on_first(meeting, "lock", [this] { lock(); });
  checkpoint::on_first(meeting, "tokens", [&] { check_tokens(job); });
  if (job.resume) restore(*job.resume, model_, step_);
  if (job.resume || job.model.source) refuse_not_finite(job, model_, std::nullopt);
  if (saves && job.resume)
    checkpoint::on_first(meeting, "begin", [&] { begin_from(job.recipe.checkpoint, job.resume->directory); });
  if (saves) saver_.emplace(job, meeting, model_, step_);
  for (const ValidationSet& set : job.validation)
    validation_.emplace_back(set.dataset, split(), job.model.spec->facts().vocabulary);
  if (meeting.rank() != 0) return;
  ModelSize size = size_of(whole_, model_.stages, job.recipe.optimizer.master_weights, job.recipe.max_norm);
  if (saver_) size.copies = saver_->bytes();
  const ModelFlops flops = flops_of(job, model_, trained_share(size.parameters, size.frozen));
  if (!job.size) std::cout << banner(job, size);
  if (size.copies > 0)
    std::cout << "  saving  copies to save from " << bytes_text(size.copies) << " a rank\n";
  std::cout << device_text(model_, meeting.local_world_size());
  std::cout << "  speed   " << flops.text() << "\n" << std::flush;
  for (const std::string& text : warnings(job, size, model_)) std::cerr << "warning: " << text << std::endl;
  if (saver_) clean_up(job.recipe.checkpoint.directory, stages_of(job.recipe.checkpoint), lock_->is_held());
  journal_.emplace(job, flops, wish);
  peak_.emplace();
}

// No other run may have saved between this one's look and its lock.
void Run::lock() {
  lock_.emplace(job_.recipe.checkpoint.directory);
  refuse_if_saved_since(job_.recipe.checkpoint.directory, job_.latest);
}

engine::Model Run::build(PluginRegistry& plugins, Rendezvous& meeting) {
  // The header comes first: weights may take minutes, or more memory than there is.
  if (meeting.rank() == 0 && job_.size) std::cout << banner(job_, *job_.size) << std::flush;
  const auto options = at::TensorOptions().device(at::kMeta).dtype(job_.model.dtype);
  const auto make_units = [&](const Setup&) {
    Units units = job_.model.spec->make_units(options);
    if (job_.recipe.freeze) freeze(units, *job_.recipe.freeze);
    whole_ = whole_model(units);
    return units;
  };
  const auto seed = static_cast<uint64_t>(job_.recipe.seed);
  return engine::model(
      job_.configuration, plugins,
      {meeting, make_units, job_.model.source, seed, fingerprint(job_), job_.recipe.steps.local_batch_size});
}

StepConfig Run::step_config() const {
  const OptimizerSection& optimizer = job_.recipe.optimizer;
  return {optimizer.adamw, job_.recipe.max_norm, optimizer.master_weights, optimizer.groups,
          job_.recipe.norm_type};
}

BatchSplit Run::split() const {
  return {job_.recipe.steps.local_batch_size, model_.mesh.size("dp"), model_.mesh.rank("dp")};
}

int Run::train() {
  wish_.stepping = true;
  int signal = stop_.now();
  if (signal == 0) signal = make_up();
  std::optional<Moment> moment, next;
  try {
    while (signal == 0 && (next = scheduler_.next())) {
      moment = next;
      signal = go_through(*moment);
    }
  } catch (const Error& error) {
    if (journal_ && error.code() == ErrorCode::diverged) journal_->finish();  // the curve shows it
    throw;
  }
  settle();
  if (saver_) {
    saver_->finish();
    tell_saved();
  }
  engine::settle(model_);
  trace_.finish(model_.stages, model_.mesh);
  if (moment && moment->last) signal = 0;
  if (!journal_) return signal;
  if (signal != 0) journal_->note(stopped_text(job_, signal, moment));
  finish();
  return signal;
}

// The validation that was due when a signal ended the run before. Gives a signal that ends this one, or 0.
int Run::make_up() {
  const auto owed = [&](const ValidationSet& set) { return owes_validation(job_, set.name); };
  if (std::none_of(job_.validation.begin(), job_.validation.end(), owed)) return 0;
  losses_ = job_.resume->losses;
  if (const int signal = validate(job_.scheduler.at(job_.resume->position.step - 1))) return signal;
  checkpoint::on_first(model_.mesh.meeting(), "amend",
                       [&] { amend(job_.recipe.checkpoint, job_.resume->directory, losses_); });
  return 0;
}

void Run::finish() {
  journal_->finish();
  std::cout << journal_->skipped().summary() << "  metrics     " << journal_->files().training.string()
            << "\n";
  if (!journal_->curve().empty()) std::cout << "  loss curve  " << journal_->curve() << "\n";
  if (!saved_.empty()) std::cout << "  model       " << saved_.string() << "\n";
  std::cout << std::flush;
}

int run_rank(const Job& job, PluginRegistry& plugins, Rendezvous& meeting, StopWish& wish) {
  return Run(job, plugins, meeting, wish).train();
}

}  // namespace heddle
