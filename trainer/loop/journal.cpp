// What rank 0 keeps and shows of a run.
#include "trainer/loop/journal.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <iostream>

#include "heddle/base/error.h"
#include "heddle/checkpoint/file_writer.h"
#include "heddle/checkpoint/publish.h"
#include "trainer/loop/kept_lines.h"
#include "trainer/loop/resume.h"

namespace heddle {
namespace {

Progress::Style style() {
  return isatty(STDOUT_FILENO) ? Progress::Style::rewriting : Progress::Style::lines;
}

// What a file of metrics says of the steps before those that this run makes. A run that was killed before its
// first checkpoint begins anew, and so does its file; lines beside checkpoints of another run, and in a file
// that --metrics names, stay.
std::vector<CurvePoint> kept(const Job& job, const std::filesystem::path& file, int64_t again = 0) {
  if (job.resume) return keep_before(file, job.resume->position.step - again);
  const std::filesystem::path directory = job.recipe.checkpoint.directory;
  const bool anew = job.recipe.checkpoint.enabled && file == directory / file.filename() &&
                    checkpoints_in(directory).empty();
  return anew ? keep_before(file, job.recipe.steps.start_step) : std::vector<CurvePoint>();
}

}  // namespace

Journal::Journal(const Job& job)
    : job_(job),
      training_(kept(job, job.metrics)),
      metrics_(job.metrics),
      progress_(std::cout, style(), job.scheduler.total_steps()) {
  for (const ValidationSet& set : job.validation) {
    const std::vector<CurvePoint> points =
        kept(job, file_of(set.name), owes_validation(job, set.name) ? 1 : 0);
    if (&set == &job.validation.front()) validations_ = points;
  }
}

std::filesystem::path Journal::file_of(const std::string& set) const {
  const std::string name = set.empty() ? "validation.jsonl" : "validation_" + set + ".jsonl";
  return std::filesystem::path(job_.recipe.checkpoint.directory) / name;
}

void Journal::trained(const Moment& moment, const StepReport& report, double lr, double seconds,
                      double peak_memory) {
  TrainingRecord record;
  record.step = moment.step;
  record.epoch = moment.epoch;
  record.loss = report.loss.item<double>();
  record.grad_norm = report.grad_norm.item<double>();
  record.lr = lr;
  record.mem = peak_memory;
  record.num_tokens_per_step = (moment.end - moment.begin) * job_.dataset.sequence_length();
  record.num_label_tokens = report.label_tokens;
  record.step_time = seconds;
  record.tps = static_cast<double>(record.num_tokens_per_step) / seconds;
  record.tps_per_gpu = record.tps / job_.setup.sizes.world;
  metrics_.append(to_json(record, timestamp_now()));
  training_.push_back({record.step, record.loss});
  progress_.show(record);
  if (!std::isfinite(record.loss) || !std::isfinite(record.grad_norm))
    progress_.note("warning: step " + std::to_string(record.step) +
                   ": the loss or its gradient is not finite");
}

void Journal::validated(const Moment& moment, const std::string& set, double loss, int64_t label_tokens,
                        double lr) {
  std::unique_ptr<LinesFile>& file = validation_[set];
  if (!file) file = std::make_unique<LinesFile>(file_of(set));
  file->append(to_json(ValidationRecord{moment.step, moment.epoch, loss, lr, label_tokens}, timestamp_now()));
  if (set == job_.validation.front().name) validations_.push_back({moment.step, loss});
  char text[96];
  std::snprintf(text, sizeof(text), "validation%s%s  step %lld  loss %.4f  (%lld tokens)",
                set.empty() ? "" : " ", set.c_str(), static_cast<long long>(moment.step + 1), loss,
                static_cast<long long>(label_tokens));
  progress_.note(text);
}

void Journal::finish() {
  progress_.finish();
  if (!job_.recipe.checkpoint.enabled) return;
  const std::filesystem::path file = std::filesystem::path(job_.recipe.checkpoint.directory) / "loss.svg";
  const std::string svg = loss_curve_svg(training_, validations_);
  try {
    checkpoint::make_directories(file.parent_path());
    checkpoint::FileWriter writer(file.string());
    writer.write(svg.data(), svg.size());
    writer.finish();
    curve_ = file.string();
  } catch (const Error& error) {  // the run is done, and all that matters is saved
    progress_.note(std::string("warning: no loss curve: ") + error.what());
  }
}

}  // namespace heddle
