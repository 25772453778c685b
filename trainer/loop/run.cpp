// One rank of a run: build the model, then step after step.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <optional>
#include <set>

#include "heddle/base/error.h"
#include "heddle/checkpoint/publish.h"
#include "heddle/checkpoint/together.h"
#include "trainer/data/batches.h"
#include "trainer/loop/banner.h"
#include "trainer/loop/job.h"
#include "trainer/loop/journal.h"
#include "trainer/loop/keep.h"
#include "trainer/loop/model_size.h"
#include "trainer/loop/resume.h"
#include "trainer/loop/run_lock.h"
#include "trainer/loop/save.h"
#include "trainer/loop/stop.h"
#include "trainer/models/freeze.h"
#include "trainer/models/make_units.h"
#include "trainer/recipe/signals.h"

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
  void train();

 private:
  engine::Model build(PluginRegistry& plugins, Rendezvous& meeting);
  StepConfig step_config() const;
  BatchSplit split() const;
  void lock();
  void clean() const;
  int make_up();
  int go_through(const Moment& moment);
  void train_one(const Moment& moment);
  void save(const Moment& moment);
  double peak_memory() const;
  int validate(const Moment& moment);
  std::string stopped(int signal, const std::optional<Moment>& moment) const;
  void finish();

  const Job& job_;
  ModelSize size_;
  engine::Model model_;
  Step step_;
  Batches batches_;
  std::vector<Batches> validation_;
  StepScheduler scheduler_;
  StopWish& wish_;
  StopAgreement stop_;
  std::optional<Journal> journal_;  // on rank 0
  std::optional<RunLock> lock_;     // with them, on rank 0
  std::optional<Saver> saver_;      // where checkpoints are enabled
  at::Tensor loss_;                 // of the last step
  Losses losses_;
  std::filesystem::path saved_;  // the last model in Hugging Face's format
};

Run::Run(const Job& job, PluginRegistry& plugins, Rendezvous& meeting, StopWish& wish)
    : job_(job),
      model_(build(plugins, meeting)),
      step_(model_.stages, model_.mesh, step_config()),
      batches_(job.dataset, split(), job.model.config.vocab_size),
      scheduler_(job.scheduler),
      wish_(wish),
      stop_(meeting, wish) {
  const bool saves = job.recipe.checkpoint.enabled;
  if (saves) checkpoint::on_first(meeting, "lock", [this] { lock(); });
  if (job.resume) restore(*job.resume, model_, step_);
  if (saves && job.resume)
    checkpoint::on_first(meeting, "begin", [&] { begin_from(job.recipe.checkpoint, job.resume->directory); });
  if (saves) saver_.emplace(job, meeting, model_, step_);
  for (const ValidationSet& set : job.validation)
    validation_.emplace_back(set.dataset, split(), job.model.config.vocab_size);
  if (meeting.rank() != 0) return;
  add_shards(size_, model_.stages, job.recipe.optimizer.master_weights);
  if (saver_) size_.copies = saver_->bytes();
  std::cout << banner(job, size_);
  if (model_.device) std::cout << "  device  " << model_.mesh.device() << "\n";
  if (saver_) clean();
  std::cout << std::flush;
  journal_.emplace(job);
}

// No other run may have saved between this one's look and its lock.
void Run::lock() {
  const std::filesystem::path root = job_.recipe.checkpoint.directory;
  lock_.emplace(root);
  if (checkpoint::pointed(root / "LATEST") == job_.latest) return;
  throw Error(ErrorCode::config, "checkpoint.checkpoint_dir",
              "another run has saved in " + root.string() + " while this one was getting ready",
              "start again, to go on from what it saved");
}

// What earlier runs have left where this one saves.
void Run::clean() const {
  const std::filesystem::path root = job_.recipe.checkpoint.directory;
  std::error_code unknown;
  if (!std::filesystem::is_directory(root, unknown)) return;  // the first to write there says why
  if (!lock_->is_held()) {
    std::cout << "warning: " << root.string() << " cannot be locked: see that no other run saves there\n";
    return;
  }
  for (const auto& place : std::set{root, stages_of(job_.recipe.checkpoint)})
    for (const std::string& name : sweep(place))
      std::cout << "warning: removed " << (place / name).string() << ", which an interrupted run has left\n";
}

engine::Model Run::build(PluginRegistry& plugins, Rendezvous& meeting) {
  const auto options = at::TensorOptions().device(at::kMeta).dtype(job_.model.dtype);
  const auto make_units = [&](const Setup&) {
    Units units = heddle::make_units(job_.model.config, options);
    if (job_.recipe.freeze) freeze(units, *job_.recipe.freeze);
    size_ = size_of(units);
    return units;
  };
  // Ranks with another file or other overrides are named before the first step.
  std::string lines;
  const Node others = job_.configuration.without("plugins").without("distributed");
  for (const auto& [key, value] : others.entries()) lines += key + ": " + config::to_json(value) + "\n";
  if (job_.resume) lines += "resume: " + job_.resume->directory.filename().string() + "\n";
  return engine::model(
      job_.configuration, plugins,
      {meeting, make_units, job_.model.source, static_cast<uint64_t>(job_.recipe.seed), lines});
}

StepConfig Run::step_config() const {
  const OptimizerSection& optimizer = job_.recipe.optimizer;
  return {optimizer.adamw, job_.recipe.max_norm, optimizer.master_weights, optimizer.groups,
          job_.recipe.norm_type};
}

BatchSplit Run::split() const {
  return {job_.recipe.steps.local_batch_size, model_.mesh.size("dp"), model_.mesh.rank("dp")};
}

void Run::train() {
  wish_.stepping = true;
  int signal = stop_.now();
  if (signal == 0) signal = make_up();
  std::optional<Moment> moment, next;
  while (signal == 0 && (next = scheduler_.next())) {
    moment = next;
    signal = go_through(*moment);
  }
  if (saver_) saver_->finish();
  engine::settle(model_);
  if (!journal_) return;
  if (signal != 0 && !(moment && moment->last)) journal_->note(stopped(signal, moment));
  finish();
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

// A step and what is due after it; gives the signal that ends the run here, or 0.
int Run::go_through(const Moment& moment) {
  stop_.begin(saver_ && saver_->has_failed() ? kSavingFailed : 0);
  losses_ = {};
  train_one(moment);
  int signal = stop_.end();
  if (signal == kSavingFailed) {
    saver_->finish();  // throws, on every rank after the same step
    signal = 0;
  }
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

std::string Run::stopped(int signal, const std::optional<Moment>& moment) const {
  const std::string by = "stopped by " + signal_name(signal);
  if (!moment) return by + " before the first step: nothing new to save; the same command starts again";
  const std::string at = by + " after step " + std::to_string(moment->step + 1) + " of " +
                         std::to_string(job_.scheduler.total_steps());
  if (!saver_) return at + ": nothing was saved, as checkpoint.enabled is false";
  const std::optional<std::string>& from = job_.recipe.checkpoint.restore_from;
  const bool follows = !from || *from == "LATEST";
  return at + ": saved " + directory_of(job_, *moment).string() + "; the same command " +
         (follows ? "goes on from there" : "with --checkpoint.restore_from LATEST goes on from there");
}

void Run::save(const Moment& moment) {
  // Throws where a collective was given up: what it left is not saved.
  if (model_.device) model_.device->synchronize();
  losses_.training = loss_.item<double>();
  saver_->save(model_, step_, moment, losses_);
  if (saves_model(job_.recipe.checkpoint, moment))
    saved_ = directory_of(job_, moment) / "model" / "consolidated";
}

void Run::train_one(const Moment& moment) {
  const auto begin = Clock::now();
  const double lr = job_.rates.lr(moment.step);
  const SampleOrder order(job_.dataset.size(), job_.recipe.shuffle, static_cast<uint64_t>(job_.recipe.seed),
                          moment.epoch);
  const auto microbatches = batches_.read(order, moment.begin, moment.end);
  const StepReport report = step_.run(microbatches, lr, job_.rates.weight_decay(moment.step));
  loss_ = report.loss;
  if (!journal_) return;
  if (model_.device) model_.device->synchronize();  // the host runs ahead; the time is the step's
  journal_->trained(moment, report, lr, seconds_since(begin), peak_memory());
}

// In GiB: of the device's tensors, or of this process.
double Run::peak_memory() const {
  return model_.device ? static_cast<double>(model_.device->memory().peak) / (1 << 30) : peak_memory_gib();
}

// The mean over all label tokens of each set, in groups of a global batch. A signal breaks it off; gives it,
// or 0.
int Run::validate(const Moment& moment) {
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
  std::cout << "  metrics     " << job_.metrics.string() << "\n";
  if (!journal_->curve().empty()) std::cout << "  loss curve  " << journal_->curve() << "\n";
  if (!saved_.empty()) std::cout << "  model       " << saved_.string() << "\n";
  std::cout << std::flush;
}

}  // namespace

void run_rank(const Job& job, PluginRegistry& plugins, Rendezvous& meeting, StopWish& wish) {
  Run(job, plugins, meeting, wish).train();
}

}  // namespace heddle
