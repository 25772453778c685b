// One rank of a run: build the model, then step after step.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "trainer/data/batches.h"
#include "trainer/loop/job.h"
#include "trainer/loop/skipped.h"
#include "trainer/loop/stop.h"
#include "trainer/metrics/banner.h"
#include "trainer/metrics/journal.h"
#include "trainer/metrics/mfu.h"
#include "trainer/metrics/model_size.h"
#include "trainer/metrics/peak_memory.h"
#include "trainer/models/freeze.h"
#include "trainer/saves/keep.h"
#include "trainer/saves/resume.h"
#include "trainer/saves/run_lock.h"
#include "trainer/saves/save.h"
#include "trainer/trace/run_trace.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The rank's side of a run.
class Run {
 public:
  Run(const Job& job, PluginRegistry& plugins, Rendezvous& meeting, StopWish& wish);
  int train();

 private:
  engine::Model build(PluginRegistry& plugins, Rendezvous& meeting);
  StepConfig step_config() const;
  BatchSplit split() const;
  void lock();
  int make_up();
  int go_through(const Moment& moment);
  int end_of_step(const Moment& moment);
  void train_one(const Moment& moment);
  void settle();
  void save(const Moment& moment);
  void tell_saved();
  double peak_memory() const;
  int validate(const Moment& moment);
  void finish();

  const Job& job_;
  RunTrace trace_;
  WholeModel whole_;
  engine::Model model_;
  Step step_;
  Batches batches_;
  std::vector<Batches> validation_;
  StepScheduler scheduler_;
  StopWish& wish_;
  StopAgreement stop_;
  std::optional<Journal> journal_;  // on rank 0
  std::optional<PeakMemory> peak_;  // with it
  std::optional<RunLock> lock_;     // with them, on rank 0
  std::optional<Saver> saver_;      // where checkpoints are enabled
  at::Tensor loss_;                 // of the last step
  Losses losses_;
  std::filesystem::path saved_;  // the last model in Hugging Face's format
};

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
  std::cout << banner(job, size);
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
  const auto options = at::TensorOptions().device(at::kMeta).dtype(job_.model.dtype);
  const auto make_units = [&](const Setup&) {
    Units units = job_.model.spec->make_units(options);
    if (job_.recipe.freeze) freeze(units, *job_.recipe.freeze);
    whole_ = whole_model(units);
    return units;
  };
  const auto seed = static_cast<uint64_t>(job_.recipe.seed);
  return engine::model(job_.configuration, plugins,
                       {meeting, make_units, job_.model.source, seed, fingerprint(job_)});
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

// The signal that ends the run after this step, or 0. Throws, on every rank after the same step, where a save
// has failed and where too many updates were skipped.
int Run::end_of_step(const Moment& moment) {
  int answer = stop_.end();
  if (answer != 0) settle();
  if (answer == kMayEndSkipping)
    answer = stop_.now(journal_ && journal_->skipped().end_the_run() ? kSkippedTooMany : 0);
  if (answer == kSkippedTooMany) throw too_many_skipped(job_, moment);
  if (answer != kSavingFailed) return answer;
  saver_->finish();
  return 0;
}

// A step and what is due after it; gives the signal that ends the run here, or 0.
int Run::go_through(const Moment& moment) {
  const bool may_end = journal_ && journal_->skipped().may_end_with_the_next(journal_->unlogged());
  stop_.begin(saver_ && saver_->has_failed() ? kSavingFailed : may_end ? kMayEndSkipping : 0);
  if (saver_) tell_saved();
  losses_ = {};
  train_one(moment);
  int signal = end_of_step(moment);
  // A step whose checkpoint has the name of another branch's is not the last one: the next is.
  const auto unless_taken = [&](int wish) { return job_.taken.contains(moment.step) ? 0 : wish; };
  signal = unless_taken(signal);
  if (signal == 0 && moment.validate && !job_.validation.empty()) signal = unless_taken(validate(moment));
  bool is_saved = false;
  const auto save_once = [&] {
    if (saver_ && !is_saved) save(moment);
    is_saved = true;
  };
  if (signal != 0 || moment.checkpoint) save_once();
  // What came while all waited for a validation or for the disk ends the run here, not a step later.
  if (signal == 0 && (moment.validate || moment.checkpoint)) signal = unless_taken(stop_.now());
  if (signal != 0) save_once();
  return signal;
}

void Run::save(const Moment& moment) {
  settle();
  // Throws where a collective was given up: what it left is not saved.
  if (model_.device) model_.device->synchronize();
  losses_.training = loss_.item<double>();
  // While updates are skipped, the older checkpoints may be the last good ones.
  saver_->save(model_, step_, moment, losses_, journal_ && journal_->skipped().in_a_row() > 0);
  tell_saved();
  if (saves_model(job_.recipe.checkpoint, moment))
    saved_ = directory_of(job_, moment) / "model" / "consolidated";
}

// A line for each checkpoint that has become complete; with checkpoint.is_async that is some steps later.
void Run::tell_saved() {
  for (const Moment& moment : saver_->published())
    if (journal_) journal_->saved(moment, directory_of(job_, moment));
}

void Run::train_one(const Moment& moment) {
  const auto begin = Clock::now();
  trace_.begin(step_, moment.step);
  const double lr = job_.rates.lr(moment.step);
  const SampleOrder order(job_.dataset.size(), job_.recipe.shuffle, static_cast<uint64_t>(job_.recipe.seed),
                          moment.epoch);
  const auto microbatches = batches_.read(order, moment.begin, moment.end);
  const StepReport report = step_.run(microbatches, lr, job_.rates.weight_decay(moment.step));
  loss_ = report.loss;
  trace_.end(step_, moment.step, model_.stages, model_.mesh);
  if (!journal_) return;
  if (model_.device) model_.device->synchronize();  // the host runs ahead; the time is the step's
  journal_->trained({moment, report, lr, seconds_since(begin), peak_memory()}, !step_.unsettled());
}

// Before anything but the next step looks at parameters or numbers.
void Run::settle() {
  step_.settle();
  if (journal_) journal_->log();
}

double Run::peak_memory() const {
  return model_.device ? static_cast<double>(model_.device->memory().peak) / (1 << 30) : peak_->gib();
}

// The mean over all label tokens of each set, in groups of a global batch. A signal breaks it off; gives it,
// or 0.
int Run::validate(const Moment& moment) {
  settle();
  const int64_t group = job_.recipe.steps.global_batch_size;
  for (size_t i = 0; i < validation_.size(); ++i) {
    if (losses_.validation.count(job_.validation[i].name) != 0) continue;  // by the run before
    const int64_t samples = job_.validation[i].dataset.size();
    const SampleOrder order(samples, Shuffle::off, 0, 0);
    double sum = 0;
    int64_t tokens = 0;
    for (int64_t begin = 0; begin < samples; begin += group) {
      stop_.begin();
      const auto microbatches = validation_[i].read(order, begin, std::min(begin + group, samples));
      const StepReport report = step_.evaluate(microbatches);
      sum += report.loss.item<double>() * static_cast<double>(report.label_tokens);
      tokens += report.label_tokens;
      if (const int signal = stop_.end()) return signal;
    }
    losses_.validation[job_.validation[i].name] = sum / static_cast<double>(tokens);
    if (journal_)
      journal_->validated(moment, job_.validation[i].name, sum / static_cast<double>(tokens), tokens,
                          job_.rates.lr(moment.step));
  }
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

}  // namespace

int run_rank(const Job& job, PluginRegistry& plugins, Rendezvous& meeting, StopWish& wish) {
  return Run(job, plugins, meeting, wish).train();
}

}  // namespace heddle
