// One rank of a run: from the built model to the last line.
#include "lib/run/loop/run.h"

#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>

#include "core/base/running_call.h"
#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/run/checkpointing/keep.h"
#include "lib/run/checkpointing/resume.h"
#include "lib/run/checkpointing/skipped.h"
#include "lib/run/loop/benchmark.h"
#include "lib/run/loop/build.h"
#include "lib/run/loop/clean_up.h"
#include "lib/run/metrics/banner.h"
#include "lib/run/metrics/mfu.h"

namespace heddle {

Run::Run(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous, StopRequest& request)
    : run_(run),
      trace_(run.trace, rendezvous, run.resume ? run.resume->position.step : 0,
             run.pipeline ? run.pipeline->schedule : ""),
      model_(build_model(run, plugins, trace_.rendezvous(), whole_)),
      optimizer_(run.recipe.optimizer.make()),
      step_(model_.stages, model_.mesh, step_config(run.recipe), *optimizer_),
      batches_{Batches(run.dataset, split_of(run, model_.mesh), run.model.spec->facts().vocabulary),
               Batches(run.dataset, split_of(run, model_.mesh), run.model.spec->facts().vocabulary)},
      scheduler_(run.scheduler),
      stop_request_(request),
      stop_(rendezvous, request) {
  const bool saves = run.recipe.checkpoint.enabled;
  if (saves) checkpoint::on_first(rendezvous, "lock", [this] { lock(); });
  checkpoint::on_first(rendezvous, "tokens", [&] { check_vocabulary(run); });
  if (run.resume) restore(run, model_, step_);
  if (run.resume || run.model.source) refuse_not_finite(run, model_, std::nullopt);
  if (saves && run.resume)
    checkpoint::on_first(rendezvous, "begin",
                         [&] { begin_from(run.recipe.checkpoint, run.resume->directory); });
  if (saves) saver_.emplace(run, rendezvous, model_, step_);
  for (const ValidationSet& set : run.validation)
    validation_.emplace_back(set.dataset, split_of(run, model_.mesh), run.model.spec->facts().vocabulary);
  if (!run.recipe.samples.prompts.empty()) samples_.emplace(run, model_);
  if (rendezvous.rank() != 0) return;
  ModelSize size = size_of(whole_, model_.stages, step_.optimizer_state(), run.recipe.max_norm);
  if (saver_) size.copies = saver_->bytes();
  const ModelFlops flops = flops_of(run, model_, trained_share(size.parameters, size.frozen));
  show_header(run, size, model_, flops, rendezvous.local_world_size());
  if (saver_) clean_up(run.recipe.checkpoint.directory, stages_of(run.recipe.checkpoint), lock_->is_held());
  journal_.emplace(run, flops, request);
  peak_.emplace();
}

// No other run may have saved between this one's preflight and its lock.
void Run::lock() {
  lock_.emplace(run_.recipe.checkpoint.directory);
  refuse_if_saved_since(run_.recipe.checkpoint.directory, run_.latest);
}

int Run::train() {
  stop_request_.stepping = true;
  int signal = stop_.now();
  if (signal == 0) signal = run_missed_validation();
  std::optional<StepInfo> info, next = scheduler_.next();
  try {
    while (signal == 0 && next) {
      info = std::exchange(next, scheduler_.next());
      signal = run_step(*info, next);
    }
  } catch (const Error& error) {
    if (journal_ && error.code() == ErrorCode::diverged) journal_->finish();  // the curve shows it
    throw;
  }
  settle();
  if (saver_) {
    saver_->finish();
    report_saved();
  }
  engine::settle(model_);
  trace_.finish(model_.stages, model_.mesh);
  if (signal == kUnreadable)
    checkpoint::together(model_.mesh.rendezvous(), "unreadable batch", [this] {
      if (unreadable_) throw *unreadable_;
    });
  if (info && info->last) signal = 0;
  if (!journal_) return signal;
  if (signal != 0) journal_->note(stopped_text(run_, signal, info));
  finish();
  return signal;
}

// The validation that was due when a signal ended the run before. Gives a signal that ends this one, or 0.
int Run::run_missed_validation() {
  const auto owed = [&](const ValidationSet& set) { return owes_validation(run_, set.name); };
  if (std::none_of(run_.validation.begin(), run_.validation.end(), owed)) return 0;
  losses_ = run_.resume->losses;
  if (const int signal = validate(run_.scheduler.at(run_.resume->position.step - 1))) return signal;
  checkpoint::on_first(model_.mesh.rendezvous(), "amend",
                       [&] { amend(run_.recipe.checkpoint, run_.resume->directory, losses_); });
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

int run_rank(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous, StopRequest& request) {
  if (run.recipe.benchmark) return run_benchmark(run, plugins, rendezvous, request);
  return Run(run, plugins, rendezvous, request).train();
}

std::pair<std::string_view, std::string_view> running_plugin_call() {
  const auto call = RunningCall::current();
  return {call.plugin, call.doing};
}

}  // namespace heddle
