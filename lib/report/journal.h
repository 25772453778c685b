// What rank 0 keeps and shows of a run: metrics files, the plugins that take metrics, the progress line, the
// picture of the loss.
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

// Parts of a loss over the groups of a validation set: side outputs that are shown in validations too.
class LossParts {
 public:
  // A group's values, which are means over its label tokens. Waits for the device where there are any.
  void add(const StepReport& report);
  // Means over all label tokens, in the order of the model.
  std::vector<SideRecord> means() const;

 private:
  std::vector<std::string> names_;
  std::map<std::string, double> sums_;
  int64_t tokens_ = 0;
};

// What a journal knows of its run.
struct JournalOf {
  MetricsOwner owner;
  std::vector<SinkSection> sinks;
  MetricsRun told;  // to the sinks
  int64_t total_steps = 0;
  int ranks = 1;
  std::optional<int64_t> max_skipped_updates;
  ModelFlops flops;
};

class Journal {
 public:
  // Opens the metrics files, as take_metrics_files() says, and starts the plugins. `open_line`: as in a
  // Screen. Throws Error{io}, and what a plugin throws.
  Journal(JournalOf run, std::atomic<bool>& open_line);

  struct Trained {
    int64_t step = 0, epoch = 0;
    int64_t tokens = 0;             // that do not fill rows
    std::optional<double> padding;  // as in a TrainingRecord
    StepReport report;
    double lr = 0, seconds = 0, peak_memory = 0;
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
  void validated(int64_t step, int64_t epoch, const Validated& one);
  // A line of samples.jsonl, and one of the screen.
  void sampled(const SampleRecord& one);
  // A line for a checkpoint that is complete: the screen counts steps from 1, its name and the metrics from
  // 0.
  void saved(int64_t step, const std::filesystem::path& directory);
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

  const JournalOf run_;
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
