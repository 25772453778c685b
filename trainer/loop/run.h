// One rank of a run: build the model, then step after step.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "trainer/data/batches.h"
#include "trainer/loop/job.h"
#include "trainer/loop/stop.h"
#include "trainer/metrics/journal.h"
#include "trainer/metrics/model_size.h"
#include "trainer/metrics/peak_memory.h"
#include "trainer/saves/run_lock.h"
#include "trainer/saves/save.h"
#include "trainer/trace/run_trace.h"

namespace heddle {

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
  bool may_save(const Moment& moment, bool ends);
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

}  // namespace heddle
