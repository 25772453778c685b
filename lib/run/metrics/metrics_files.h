// Which files a run writes its metrics to: one run, one curve.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lib/report/loss_curve.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

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
MetricsFiles take_metrics_files(const RunSpec& run);

// Of each validation set, in checkpoint_dir, and of validation_samples, where the recipe gives any.
std::vector<std::filesystem::path> validation_files(const RunSpec& run);

}  // namespace heddle
