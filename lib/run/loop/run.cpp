// One rank of a run: builds its model, then runs steps, validations and saves.
#include "lib/run/loop/run.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/running_call.h"
#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/cost/peak_memory.h"
#include "lib/data/tokens/token_check.h"
#include "lib/run/checkpointing/keep.h"
#include "lib/run/checkpointing/not_finite.h"
#include "lib/run/checkpointing/resume.h"
#include "lib/run/checkpointing/run_lock.h"
#include "lib/run/checkpointing/save.h"
#include "lib/run/facts/run_facts.h"
#include "lib/run/loop/clean_up.h"
#include "lib/run/loop/shared_directories.h"
#include "lib/run/loop/stop.h"
#include "lib/run/loop/validation_samples.h"
#include "lib/run/recipe/benchmark.h"
#include "lib/run/trace/run_trace.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Error with_moment(const Error& error, const std::string& moment) {
  return {error.code(), error.where(), moment + ": " + error.message(), error.hint()};
}

// Returns the tokens of a step without padding.
int64_t text_tokens(const RunSpec& run, const StepInfo& info) {
  const Rows& rows = run.dataset;
  if (rows.packing() == nullptr && !rows.is_uneven()) return (info.end - info.begin) * rows.length();
  const SampleOrder order = order_of(run, info.epoch);
  int64_t tokens = 0;
  for (int64_t place = info.begin; place < info.end; ++place) tokens += rows.text_tokens(order[place]);
  return tokens;
}

// Share of padding tokens; empty if all rows are full.
std::optional<double> padding_of(const RunSpec& run, const StepInfo& info, int64_t text) {
  const Rows& rows = run.dataset;
  if (rows.packing() == nullptr && !rows.is_uneven()) return std::nullopt;
  const BatchSplit split{run.recipe.steps.local_batch_size, run.setup.sizes.dp, 0};
  const int64_t all = computed_tokens(rows, split, order_of(run, info.epoch), info.begin, info.end);
  return 1 - static_cast<double>(text) / static_cast<double>(all);
}

// Compares the step times of a run with the prediction of `heddle plan` in its recipe.
class PlanComparison {
 public:
  explicit PlanComparison(const RunSpec& run)
      : plan_(recipe::read_plan(run.recipe.configuration)), ranks_(run.setup.sizes.world) {}

  // Adds steps that took `seconds` together. Returns the line to print, once; otherwise "".
  std::string add(double seconds, int64_t steps) {
    if (plan_.step_seconds == 0 || is_reported_ || steps <= 0) return "";
    seconds_.insert(seconds_.end(), static_cast<size_t>(steps), seconds / static_cast<double>(steps));
    if (seconds_.size() < kCompared) return "";
    is_reported_ = true;
    if (plan_.world_size != 0 && plan_.world_size != ranks_)
      return "plan: made for " + std::to_string(plan_.world_size) + " ranks; this run has " +
             std::to_string(ranks_);
    const auto first = seconds_.begin() + kWarmUp;
    const auto middle = first + (seconds_.end() - first) / 2;
    std::nth_element(first, middle, seconds_.end());
    char text[96];
    std::snprintf(text, sizeof(text), "plan: predicted %.4g ms per step, measured %.4g ms",
                  plan_.step_seconds * 1e3, *middle * 1e3);
    return text;
  }

 private:
  static constexpr size_t kCompared = 20;       // steps
  static constexpr std::ptrdiff_t kWarmUp = 5;  // first steps, which are slower and not compared

  const PlanSection plan_;
  const int64_t ranks_;
  std::vector<double> seconds_;  // [step]
  bool is_reported_ = false;
};

// State of one rank of a run.
class Run {
 public:
  Run(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous, StopRequest& request);
  int train();

 private:
  void lock();
  int run_missed_validation();
  int run_step(const StepInfo& info, const std::optional<StepInfo>& next);
  int end_of_step(const StepInfo& info);
  [[noreturn]] void refuse_no_labels(const StepInfo& info) const;
  void train_one(const StepInfo& info, const std::optional<StepInfo>& next);
  void read_ahead(const StepInfo& info);
  void settle();
  void log();
  void compare_with_plan(double seconds, int64_t steps);
  bool may_save(const StepInfo& info, bool ends);
  void save(const StepInfo& info);
  void report_saved();
  double peak_memory() const;
  Journal::Trained trained(const StepInfo& info, const StepReport& report, double lr, double seconds) const;
  int validate(const StepInfo& info);
  int sample(const StepInfo& info);
  void finish();

  const RunSpec& run_;
  RunTrace trace_;
  WholeModel whole_;
  engine::Model model_;
  std::unique_ptr<IOptimizer> optimizer_;  // made by the plugin that offers _target_
  Step step_;
  std::array<Batches, 2> batches_;     // of the current and of the next step, alternating
  std::span<const Batch> next_batch_;  // batch of the next step; empty: not read yet
  std::optional<Error> unreadable_;    // why the next step's batch cannot be read
  std::vector<Batches> validation_;
  std::optional<ValidationSamples> samples_;  // set if the recipe has prompts
  StepScheduler step_scheduler_;
  StopRequest& stop_request_;
  StopAgreement stop_;
  std::optional<Journal> journal_;  // set on rank 0
  std::optional<PeakMemory> peak_;  // set on rank 0
  PlanComparison plan_;             // used on rank 0
  std::optional<RunLock> lock_;     // set on rank 0
  std::optional<Saver> saver_;      // set if checkpoints are enabled
  at::Tensor loss_;                 // loss of the last step
  bool begins_ = true;              // no step has run yet
  // start of the steps that the journal has not logged yet
  std::optional<std::chrono::steady_clock::time_point> kept_since_;
  Losses losses_;
  std::filesystem::path saved_;  // the last exported model
};

Run::Run(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous, StopRequest& request)
    : run_(run),
      trace_(run.trace, rendezvous, run.resume ? run.resume->position.step : 0,
             run.pipeline ? run.pipeline->schedule : ""),
      model_(build_model(run, plugins, trace_.rendezvous(), whole_)),
      optimizer_(run.recipe.optimizer.make()),
      step_(model_.stages, model_.mesh, step_config(run.recipe), *optimizer_),
      batches_{Batches(run.dataset, split_of(run, model_.mesh), run.model.spec->facts().vocabulary),
               Batches(run.dataset, split_of(run, model_.mesh), run.model.spec->facts().vocabulary)},
      step_scheduler_(run.scheduler),
      stop_request_(request),
      stop_(rendezvous, request),
      plan_(run) {
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
  const ModelFlops flops = flops_of(run, model_, size);
  show_header(run, size, model_, flops, rendezvous.local_world_size());
  if (saver_) clean_up(run.recipe.checkpoint.directory, stages_of(run.recipe.checkpoint), lock_->is_held());
  journal_.emplace(journal_of(run, flops), request.open_line);
  peak_.emplace();
}

// Throws if another run saved between this run's preflight and its lock.
void Run::lock() {
  lock_.emplace(run_.recipe.checkpoint.directory);
  refuse_if_saved_since(run_.recipe.checkpoint.directory, run_.latest);
}

int Run::train() {
  stop_request_.stepping = true;
  int signal = stop_.now();
  if (signal == 0) signal = run_missed_validation();
  std::optional<StepInfo> info, next = step_scheduler_.next();
  try {
    while (signal == 0 && next) {
      info = std::exchange(next, step_scheduler_.next());
      signal = run_step(*info, next);
    }
  } catch (const Error& error) {
    // the loss curve shows the divergence
    if (journal_ && error.code() == ErrorCode::diverged) journal_->finish();
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
    checkpoint::on_every_rank(model_.mesh.rendezvous(), "unreadable batch", [this] {
      if (unreadable_) throw *unreadable_;
    });
  if (info && info->last) signal = 0;
  if (!journal_) return signal;
  if (signal != 0) journal_->note(stopped_text(run_, signal, info));
  finish();
  return signal;
}

// Runs a step and what is due after it. Returns the signal that stops the run here, kUnreadable, or 0.
int Run::run_step(const StepInfo& info, const std::optional<StepInfo>& next) {
  if (saver_) report_saved();
  losses_ = {};
  train_one(info, next);
  int signal = end_of_step(info);
  // If another branch has a checkpoint with this step's name, the run stops after the next step instead.
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
  // A signal that arrived during the validation or the save stops the run here, not a step later.
  if (signal == 0 && (info.validate || info.checkpoint)) signal = unless_taken(stop_.now());
  if (signal != 0 && !is_saved && may_save(info, true)) save_now();
  return signal;
}

// Trains one step. The batch of the next step is read first: if a rank cannot read it, all ranks save this
// step and stop. The agreement to stop runs concurrently with the step.
void Run::train_one(const StepInfo& info, const std::optional<StepInfo>& next) {
  const auto begin = Clock::now();
  trace_.begin(step_, info.step);
  const double lr = run_.rates.lr(info.step);
  if (next_batch_.empty()) read_ahead(info);
  const std::span<const Batch> batches = std::exchange(next_batch_, {});
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
  const StepReport report = step_.run(batches, lr, run_.rates.weight_decay(info.step));
  if (std::exchange(begins_, false) && report.label_tokens == 0) refuse_no_labels(info);
  loss_ = report.loss;
  trace_.end(step_, info.step, model_.stages, model_.mesh);
  if (!journal_) return;
  const int64_t together = run_.recipe.steps.log_remote_every_steps;
  if (model_.device && together > 1 && !step_.unsettled()) {
    if (journal_->unlogged() == 0) kept_since_ = begin;
    journal_->keep(trained(info, report, lr, 0));
    if (journal_->unlogged() >= together) log();
    return;
  }
  // kernels run asynchronously; the measured time must include them
  if (model_.device) model_.device->synchronize();
  const double seconds = seconds_since(begin);
  journal_->trained(trained(info, report, lr, seconds), !step_.unsettled());
  compare_with_plan(seconds, 1);
}

// Reads the batch of a step. Throws Error that names the row and the step.
void Run::read_ahead(const StepInfo& info) {
  Batches& batches = batches_[static_cast<size_t>(info.step % 2)];
  try {
    next_batch_ = batches.read(order_of(run_, info.epoch), info.begin, info.end, step_of(run_, whole_, info));
  } catch (const Error& error) {
    throw with_moment(error, "step " + std::to_string(info.step + 1));
  }
}

// Returns the signal that stops the run after this step, kUnreadable, or 0. If a save failed or too many
// updates were skipped, throws on every rank after the same step.
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

// Runs the validation that was due when a signal stopped the previous run. Returns the signal that stops this
// run, or 0.
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

// Whether a step may be saved: not if its loss is not finite or if more updates were skipped than made, so
// that the previous checkpoint stays the newest. Throws on every rank if the run ends with
// this step.
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
  // Throws if a collective was aborted, so that its incomplete results are not saved.
  if (model_.device) model_.device->synchronize();
  losses_.training = loss_.item<double>();
  // While updates are skipped, older checkpoints may be the last good ones, so they are kept.
  saver_->save(model_, step_, info, losses_, journal_ && journal_->skipped().in_a_row() > 0);
  report_saved();
  if (saves_model(run_, info)) saved_ = directory_of(run_, info) / "model" / "consolidated";
}

// Prints a line for each checkpoint that was published; with checkpoint.is_async, some steps after its save.
void Run::report_saved() {
  for (const StepInfo& info : saver_->published())
    if (journal_) journal_->saved(info.step, directory_of(run_, info));
}

// Throws after the first step if no token has a label: such data trains nothing.
void Run::refuse_no_labels(const StepInfo& info) const {
  throw Error(ErrorCode::input, run_.recipe.dataset->where,
              "none of the " + std::to_string(info.end - info.begin) +
                  " samples of the first step has a token with a label",
              "check the labels of the data; -100 marks a token without a label, and a sample of one token "
              "has no label");
}

void Run::compare_with_plan(double seconds, int64_t steps) {
  const std::string line = plan_.add(seconds, steps);
  if (!line.empty()) journal_->note(line);
}

// Logs the steps that the journal has kept. On a device, the host waits for steps only here.
void Run::log() {
  if (!journal_ || journal_->unlogged() == 0) return;
  if (!kept_since_) return journal_->log();
  model_.device->synchronize();
  const double seconds = seconds_since(*std::exchange(kept_since_, std::nullopt));
  const int64_t steps = journal_->unlogged();
  journal_->log(seconds);
  compare_with_plan(seconds, steps);
}

// Called before anything but the next step reads parameters or metrics.
void Run::settle() {
  step_.settle();
  log();
}

// Returns the values of a step for the journal.
Journal::Trained Run::trained(const StepInfo& info, const StepReport& report, double lr,
                              double seconds) const {
  const int64_t tokens = text_tokens(run_, info);
  return {info.step, info.epoch, tokens, padding_of(run_, info, tokens), report, lr, seconds, peak_memory()};
}

double Run::peak_memory() const {
  return model_.device ? static_cast<double>(model_.device->memory().peak) / (1 << 30) : peak_->gib();
}

// Computes the mean loss over all label tokens of each validation set, one global batch at a time. Stops at a
// signal or at a batch that cannot be read. Returns the signal, kUnreadable, or 0.
int Run::validate(const StepInfo& info) {
  settle();
  const int64_t group = run_.recipe.steps.global_batch_size;
  for (size_t i = 0; i < validation_.size(); ++i) {
    if (losses_.validation.count(run_.validation[i].name) != 0) continue;  // measured by the previous run
    const int64_t all = run_.validation[i].dataset.size(),
                  samples = all - all % run_.recipe.whole_validation_samples;
    const SampleOrder order(all, Shuffle::off, 0, 0);
    double sum = 0;
    int64_t tokens = 0;
    LossParts parts;
    for (int64_t begin = 0; begin < samples; begin += group) {
      if (journal_) journal_->validating(run_.validation[i].name, begin, samples);
      std::span<const Batch> batches;
      try {
        batches =
            validation_[i].read(order, begin, std::min(begin + group, samples), {.step = info.step + 1});
      } catch (const Error& error) {
        unreadable_ = with_moment(error, "the validation after step " + std::to_string(info.step + 1));
      }
      if (const int signal = stop_.now(unreadable_ ? kUnreadable : 0)) return signal;
      const StepReport report = step_.evaluate(batches);
      sum += report.loss.item<double>() * static_cast<double>(report.label_tokens);
      tokens += report.label_tokens;
      if (journal_) parts.add(report);
    }
    if (tokens == 0)
      throw Error(
          ErrorCode::input,
          "validation_dataset" + (run_.validation[i].name.empty() ? "" : "_" + run_.validation[i].name),
          "none of its " + std::to_string(samples) + " samples has a token with a label",
          "use a data set with labels other than -100");
    losses_.validation[run_.validation[i].name] = sum / static_cast<double>(tokens);
    if (journal_)
      journal_->validated(info.step, info.epoch,
                          {run_.validation[i].name, sum / static_cast<double>(tokens), tokens,
                           run_.rates.lr(info.step), parts.means()});
  }
  return samples_ ? sample(info) : 0;
}

// Returns a signal that arrived meanwhile, which stops the run.
int Run::sample(const StepInfo& info) {
  for (const SampleRecord& one : samples_->answers(info))
    if (journal_) journal_->sampled(one);
  return stop_.now();
}

}  // namespace

engine::Model build_model(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous,
                          WholeModel& whole) {
  check_shared_directories(run, rendezvous);
  if (rendezvous.rank() == 0 && run.size) std::cout << header_of(run).text(*run.size) << std::flush;
  const auto make_units = [&](const Setup&) {
    Units units = run.model.make();
    whole = whole_model(units, run.model.packed(), run.model.of_other_models());
    return units;
  };
  const auto seed = static_cast<uint64_t>(run.recipe.seed);
  return engine::model(run.setup, plugins,
                       {rendezvous, make_units, run.model.values(seed), seed, fingerprint(run),
                        run.recipe.steps.local_batch_size});
}

BatchSplit split_of(const RunSpec& run, const DeviceMesh& mesh) {
  return {run.recipe.steps.local_batch_size, mesh.size("dp"), mesh.rank("dp")};
}

StepOfBatch step_of(const RunSpec& run, const WholeModel& whole, const StepInfo& info) {
  StepOfBatch out{info.step};
  if (whole.draws) out.draw_seed = static_cast<uint64_t>(run.recipe.seed);
  return out;
}

void check_vocabulary(const RunSpec& run) {
  std::vector<const Rows*> datasets{&run.dataset};
  for (const ValidationSet& set : run.validation) datasets.push_back(&set.dataset);
  const CheckpointSection& section = run.recipe.checkpoint;
  const std::filesystem::path notes =
      section.enabled ? std::filesystem::path(section.directory) / kTokenNotes : "";
  check_tokens(datasets, run.model.spec->facts().vocabulary, notes);
}

void show_header(const RunSpec& run, const ModelSize& size, const engine::Model& model,
                 const ModelFlops& flops, int local_ranks) {
  const RunHeader header = header_of(run);
  if (!run.size) std::cout << header.text(size);
  if (size.copies > 0)
    std::cout << "  saving  copies for saving: " << bytes_text(size.copies) << " per rank\n";
  std::cout << device_text(model, local_ranks);
  std::cout << "  speed   " << flops.text() << "\n" << std::flush;
  for (const std::string& text : header_warnings(header, run.setup.warnings, size, model))
    std::cerr << "warning: " << text << std::endl;
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
