// What rank 0 keeps and shows of a run: metrics files, the progress line, the picture of the loss.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "heddle/train/step.h"
#include "trainer/loop/job.h"
#include "trainer/loop/loss_curve.h"
#include "trainer/loop/metrics.h"
#include "trainer/loop/progress.h"

namespace heddle {

class Journal {
 public:
  // Opens the metrics file; where the run goes on, lines of steps that it runs again are taken away. Throws
  // Error{io}.
  explicit Journal(const Job& job);

  // A line of metrics, flushed, and the progress. Throws Error{io} when the disk is full.
  void trained(const Moment& moment, const StepReport& report, double lr, double seconds, double peak_memory);
  // One set's loss over all its label tokens.
  void validated(const Moment& moment, const std::string& set, double loss, int64_t label_tokens, double lr);
  void note(const std::string& text) { progress_.note(text); }
  // Writes the picture of the loss, where anything is saved, and ends the progress line.
  void finish();
  const std::string& curve() const { return curve_; }  // its path; empty: none

 private:
  std::filesystem::path file_of(const std::string& set) const;

  const Job& job_;
  std::vector<CurvePoint> training_;
  LinesFile metrics_;
  std::map<std::string, std::unique_ptr<LinesFile>> validation_;
  Progress progress_;
  std::vector<CurvePoint> validations_;
  std::string curve_;
};

}  // namespace heddle
