// Records of a run on rank 0: metrics files, metrics plugins, the progress line, and the loss plot.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heddle/train/step.h"
#include "lib/cost/mfu.h"
#include "lib/report/loss_curve.h"
#include "lib/report/metrics.h"
#include "lib/report/metrics_files.h"
#include "lib/report/progress.h"
#include "lib/report/sinks.h"
#include "lib/report/skipped_updates.h"

namespace heddle {

// Averages parts of a loss over a validation set: side outputs that are shown in validations too.
class LossParts {
 public:
  // Adds a group's values, which are means over its label tokens. Waits for the device if there are values.
  void add(const StepReport& report);
  // Returns the means over all label tokens, in the order of the model.
  std::vector<SideRecord> means() const;

 private:
  std::vector<std::string> names_;
  std::map<std::string, double> sums_;
  int64_t tokens_ = 0;
};

// Properties of the run.
struct JournalOf {
  MetricsOwner owner;
  std::vector<SinkSection> sinks;
  MetricsRun told;  // values for the sinks
  int64_t total_steps = 0;
  int ranks = 1;
  std::optional<int64_t> max_skipped_updates;
  ModelFlops flops;
};

class Journal {
 public:
  // Opens the metrics files as take_metrics_files() does, and starts the plugins. `open_line`: as in a
  // Screen. Throws Error{io} and the plugins' errors.
  Journal(JournalOf run, std::atomic<bool>& open_line);

  struct Trained {
    int64_t step = 0, epoch = 0;
    int64_t tokens = 0;             // without padding
    std::optional<double> padding;  // as in a TrainingRecord
    StepReport report;
    double lr = 0, seconds = 0, peak_memory = 0;
  };
  // Writes a line of metrics, flushed, and shows the progress. Throws Error{io} if the disk is full. If the
  // report is not `known` yet, the next call of trained() or log() writes the line.
  void trained(Trained step, bool known);
  // Keeps a step whose report is still on the device, for trained() or log() to write, so that the host does
  // not wait.
  void keep(Trained step) { unlogged_.push_back(std::move(step)); }
  // Writes the kept steps. seconds: their total time if their own times are unknown; 0: use their own times.
  void log(double seconds = 0);
  int64_t unlogged() const { return static_cast<int64_t>(unlogged_.size()); }  // steps
  // Shows the progress of a validation, starting at 0 samples.
  void validating(const std::string& set, int64_t done, int64_t samples) {
    progress_.validating(set, done, samples);
  }
  // The loss of one set over all its label tokens, and its parts.
  struct Validated {
    std::string set;
    double loss = 0;
    int64_t label_tokens = 0;
    double lr = 0;
    std::vector<SideRecord> parts = {};
  };
  void validated(int64_t step, int64_t epoch, const Validated& validation);
  // Writes a line of samples.jsonl and prints one.
  void sampled(const SampleRecord& sample);
  // Prints a line for a published checkpoint. Printed steps count from 1, those of its name and the metrics
  // from 0.
  void saved(int64_t step, const std::filesystem::path& directory);
  void note(const std::string& text) { progress_.note(text); }
  // Prints a warning on standard error, after terminating the progress line.
  void warn(const std::string& text);
  const SkippedUpdates& skipped() const { return skipped_; }
  // Writes the loss plot if the run saves, and terminates the progress line.
  void finish();
  const MetricsFiles& files() const { return files_; }
  const std::string& curve() const { return curve_; }  // path of the plot; empty: none

 private:
  void write(const Trained& step);
  void warn(const TrainingRecord& record);

  const JournalOf run_;
  MetricsFiles files_;
  LinesFile metrics_;
  std::map<std::string, LinesFile> validation_;  // by set
  std::optional<LinesFile> samples_;             // for validation_samples; empty: none
  Progress progress_;
  Sinks sinks_;
  SkippedUpdates skipped_;
  std::vector<Trained> unlogged_;
  std::string curve_;
};

}  // namespace heddle
