// Chooses the metrics files of a run, so that each file contains one run.
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

// Properties of a run that determine its metrics files.
struct MetricsOwner {
  // Checkpoint that the run resumes from.
  struct Resumed {
    std::filesystem::path checkpoint;
    int64_t step = 0;                          // the next step
    double training = 0;                       // loss of its last step
    std::map<std::string, double> validation;  // losses after that step, by name of the set
    std::set<std::string> owed;                // sets whose validation after that step this run must do
  };
  std::filesystem::path directory;  // checkpoint_dir
  std::filesystem::path training;   // training.jsonl there, or the file of --metrics
  bool is_named = false;            // by --metrics
  bool saves = false;               // checkpoints are enabled
  std::vector<std::string> sets;    // names of the validation sets
  bool has_samples = false;         // the recipe has validation_samples
  std::optional<Resumed> resumed = std::nullopt;
};

// A run continues a metrics file that contains the step of the checkpoint it resumes from with the same loss;
// lines of later steps are removed. Any other file belongs to another run and gets no lines: if this run
// saves, or --metrics names the file, it is renamed (training.jsonl to training.1.jsonl, together with the
// validation files and the loss plot). Otherwise this run uses a numbered name itself.
struct MetricsFiles {
  std::filesystem::path training;
  std::map<std::string, std::filesystem::path> validation;   // by name of the set
  std::filesystem::path samples;                             // of validation_samples; empty: none
  std::vector<CurvePoint> trained;                           // points of earlier steps
  std::map<std::string, std::vector<CurvePoint>> validated;  // by name of the set
  std::vector<std::string> notes;                            // renamed files, for the user
};

// Called on rank 0 before the first step, with the lock of checkpoint_dir if the run saves. Creates the
// files; pipes and devices are unchanged. Throws Error{io}.
MetricsFiles take_metrics_files(const MetricsOwner& run);

// Returns the files in checkpoint_dir of the validation sets, and of validation_samples if the recipe has
// prompts.
std::vector<std::filesystem::path> validation_files(const MetricsOwner& run);

// Removes the lines from `step` on and a line truncated by a crash, and returns the losses of the remaining
// lines. Replaces the file atomically; leaves it alone if nothing is to be removed, it does not exist, or it
// is a pipe or a device. Throws Error{io}.
std::vector<CurvePoint> keep_before(const std::filesystem::path& file, int64_t step);

// Returns the loss of a step in a file, from its last line; nan if it was not finite. Empty: no such line.
std::optional<double> loss_at(const std::filesystem::path& file, int64_t step);

// Whether the first line contains metrics.
bool begins_with_metrics(const std::filesystem::path& file);

}  // namespace heddle
