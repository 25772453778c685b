// Which files a run writes its metrics to: one run, one curve.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/report/loss_curve.h"

namespace heddle {

// What decides which files a run's metrics go to.
struct MetricsOwner {
  // The checkpoint that the run resumes from.
  struct Resumed {
    std::filesystem::path checkpoint;
    int64_t step = 0;                          // the next one
    double training = 0;                       // the loss of its last step
    std::map<std::string, double> validation;  // losses after it, by the name of the set
    std::set<std::string> owed;                // sets whose validation after it is made by this run
  };
  std::filesystem::path directory;  // checkpoint_dir
  std::filesystem::path training;   // training.jsonl there, or the file of --metrics
  bool is_named = false;            // by --metrics
  bool saves = false;               // checkpoints are enabled
  std::vector<std::string> sets;    // names of the validation sets
  bool has_samples = false;         // of validation_samples
  std::optional<Resumed> resumed = std::nullopt;
};

// A run continues a metrics file that has the step of the checkpoint it resumes from, with that checkpoint's
// loss; lines of later steps are removed. Any other file is of another run, and no line goes into it: where
// this run saves, or --metrics names the file, it is renamed (training.jsonl to training.1.jsonl, with the
// validation files and the loss curve beside it), and else this run takes such a name itself.
struct MetricsFiles {
  std::filesystem::path training;
  std::map<std::string, std::filesystem::path> validation;   // by the name of the set
  std::filesystem::path samples;                             // of validation_samples; empty: there are none
  std::vector<CurvePoint> trained;                           // of the steps before
  std::map<std::string, std::vector<CurvePoint>> validated;  // by the name of the set
  std::vector<std::string> notes;                            // what was renamed, for the user
};

// On rank 0, before the first step, with the lock of checkpoint_dir where the run saves. The files are there
// afterwards, pipes and devices as they were. Throws Error{io}.
MetricsFiles take_metrics_files(const MetricsOwner& run);

// Of each validation set, in checkpoint_dir, and of validation_samples, where the recipe gives any.
std::vector<std::filesystem::path> validation_files(const MetricsOwner& run);

// Keeps the lines of steps before `step` and gives their losses; a line cut by a crash goes too. The file is
// replaced whole, or left alone where nothing goes, there is none, or it is a pipe or a device. Throws
// Error{io}.
std::vector<CurvePoint> keep_before(const std::filesystem::path& file, int64_t step);

// The loss in a file's line of that step, the last one; nan where it was not finite. Empty: there is none.
std::optional<double> loss_at(const std::filesystem::path& file, int64_t step);

// Whether the first line is one of metrics.
bool begins_with_metrics(const std::filesystem::path& file);

}  // namespace heddle
