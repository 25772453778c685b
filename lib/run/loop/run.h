// One rank of a run: build the model, then step after step.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/cost/model_size.h"
#include "lib/cost/peak_memory.h"
#include "lib/data/batches.h"
#include "lib/run/checkpointing/run_lock.h"
#include "lib/run/checkpointing/save.h"
#include "lib/run/loop/stop.h"
#include "lib/run/loop/validation_samples.h"
#include "lib/run/metrics/journal.h"
#include "lib/run/spec/run_spec.h"
#include "lib/run/trace/run_trace.h"

namespace heddle {

// The rank's side of a run.
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
  bool may_save(const StepInfo& info, bool ends);
  void save(const StepInfo& info);
  void report_saved();
  double peak_memory() const;
  int validate(const StepInfo& info);
  int sample(const StepInfo& info);
  void finish();

  const RunSpec& run_;
  RunTrace trace_;
  WholeModel whole_;
  engine::Model model_;
  std::unique_ptr<IOptimizer> optimizer_;
  Step step_;
  std::array<Batches, 2> batches_;     // of the current step and of the next one, in turn
  std::span<const Batch> next_batch_;  // of the next step; empty: none was read
  std::optional<Error> unreadable_;    // why the next step's batch cannot be read
  std::vector<Batches> validation_;
  std::optional<ValidationSamples> samples_;  // where the recipe gives prompts
  StepScheduler scheduler_;
  StopRequest& stop_request_;
  StopAgreement stop_;
  std::optional<Journal> journal_;                                   // on rank 0
  std::optional<PeakMemory> peak_;                                   // with it
  std::optional<RunLock> lock_;                                      // with them, on rank 0
  std::optional<Saver> saver_;                                       // where checkpoints are enabled
  at::Tensor loss_;                                                  // of the last step
  bool begins_ = true;                                               // no step has run
  std::optional<std::chrono::steady_clock::time_point> kept_since_;  // of steps that the journal keeps
  Losses losses_;
  std::filesystem::path saved_;  // the last model in Hugging Face's format
};

// Runs this rank of the run: trains, or times steps where the recipe is a benchmark. Rank 0 writes metrics
// and progress, every rank its part of checkpoints. Where any rank is asked to stop, all of them save after
// one step and return. Returns the signal that ended the run before its last step, the same on every rank; 0:
// all steps are done.
int run_rank(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous, StopRequest& stop);

// The plugin whose function this thread runs, and what it does, for a report of a crash; both are empty where
// it runs none. Safe in a handler of signals.
std::pair<std::string_view, std::string_view> running_plugin_call();

}  // namespace heddle
