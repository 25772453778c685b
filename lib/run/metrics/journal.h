// What rank 0 keeps and shows of a run: metrics files, the plugins that take metrics, the progress line, the
// picture of the loss.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heddle/train/step.h"
#include "lib/report/loss_curve.h"
#include "lib/report/metrics.h"
#include "lib/report/progress.h"
#include "lib/run/checkpointing/skipped.h"
#include "lib/run/metrics/metrics_files.h"
#include "lib/run/metrics/mfu.h"
#include "lib/run/metrics/sinks.h"
#include "lib/run/spec/run_spec.h"
#include "lib/run/spec/stop_request.h"

namespace heddle {

class Journal {
 public:
  // Opens the metrics files, as take_metrics_files() says, and starts the plugins. Throws Error{io}, and what
  // a plugin throws.
  Journal(const RunSpec& run, ModelFlops flops, StopRequest& shared);

  struct Trained {
    StepInfo info;
    StepReport report;
    double lr, seconds, peak_memory;
  };
  // A line of metrics, flushed, and the progress. Throws Error{io} when the disk is full. Where the report is
  // not `known` yet, the next call writes the line, or log().
  void trained(Trained step, bool known);
  // Keeps a step whose report is still on the device, for trained() or log() to write: the host does not
  // wait.
  void keep(Trained step) { unlogged_.push_back(std::move(step)); }
  // seconds: what the kept steps took together, where the time of none is known by itself; 0: as given.
  void log(double seconds = 0);
  int64_t unlogged() const { return static_cast<int64_t>(unlogged_.size()); }  // steps
  // How far a validation is, from 0 samples on.
  void validating(const std::string& set, int64_t done, int64_t samples) {
    progress_.validating(set, done, samples);
  }
  // One set's loss over all its label tokens, and its parts.
  struct Validated {
    std::string set;
    double loss = 0;
    int64_t label_tokens = 0;
    double lr = 0;
    std::vector<SideRecord> parts = {};
  };
  void validated(const StepInfo& info, const Validated& one);
  // A line of samples.jsonl, and one of the screen.
  void sampled(const SampleRecord& one);
  // A line for a checkpoint that is complete: the screen counts steps from 1, its name and the metrics from
  // 0.
  void saved(const StepInfo& info, const std::filesystem::path& directory);
  void note(const std::string& text) { progress_.note(text); }
  // On standard error, with the progress line ended before it.
  void warn(const std::string& text);
  const SkippedUpdates& skipped() const { return skipped_; }
  // Writes the picture of the loss, where anything is saved, and ends the progress line.
  void finish();
  const MetricsFiles& files() const { return files_; }
  const std::string& curve() const { return curve_; }  // its path; empty: none

 private:
  void write(const Trained& step);
  void warn(const TrainingRecord& record);

  const RunSpec& run_;
  ModelFlops flops_;
  MetricsFiles files_;
  LinesFile metrics_;
  std::map<std::string, LinesFile> validation_;  // by set
  std::optional<LinesFile> samples_;             // of validation_samples; empty: there are none
  Progress progress_;
  Sinks sinks_;
  SkippedUpdates skipped_;
  std::vector<Trained> unlogged_;
  std::string curve_;
};

}  // namespace heddle
