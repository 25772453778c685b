// Records and displays a run's progress on rank 0.
#include "lib/report/journal.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/safetensors/file_writer.h"
#include "lib/nn/experts/load_summary.h"

namespace heddle {
namespace {

Screen screen(std::atomic<bool>& open_line) {
  std::function<size_t()> columns;
  if (isatty(STDOUT_FILENO)) columns = [] { return terminal_columns(STDOUT_FILENO); };
  return {std::cout, columns, open_line};
}

// Waits for the device once.
std::vector<SideRecord> read_sides(const SideValues& given) {
  std::vector<SideRecord> out;
  if (!given.layout || given.layout->empty()) return out;
  const at::Tensor host = given.values.to(at::kCPU).contiguous();
  const double* values = host.const_data_ptr<double>();
  for (const SideLayout::Entry& entry : given.layout->entries()) {
    if (entry.spec.shown == Shown::nowhere) continue;
    const double* first = values + entry.report;
    out.push_back({entry.spec.name,
                   {first, first + entry.spec.size},
                   entry.spec.shown != Shown::file && entry.spec.size == 1});
  }
  for (auto& [name, value] : model::summarise_loads(given)) out.push_back({name, {value}, false});
  return out;
}

}  // namespace

void LossParts::add(const StepReport& report) {
  const SideValues& values = report.side_values;
  tokens_ += report.label_tokens;
  if (!values.layout || report.label_tokens == 0) return;
  for (const SideLayout::Entry& entry : values.layout->entries()) {
    if (entry.spec.shown != Shown::validation_too || entry.spec.size != 1) continue;
    if (sums_.count(entry.spec.name) == 0) names_.push_back(entry.spec.name);
    sums_[entry.spec.name] +=
        values.find(entry.spec.name).item<double>() * static_cast<double>(report.label_tokens);
  }
}

std::vector<SideRecord> LossParts::means() const {
  std::vector<SideRecord> out;
  for (const std::string& name : names_)
    out.push_back({name, {sums_.at(name) / static_cast<double>(std::max<int64_t>(tokens_, 1))}, true});
  return out;
}

Journal::Journal(JournalOf run, std::atomic<bool>& open_line)
    : run_(std::move(run)),
      files_(take_metrics_files(run_.owner)),
      metrics_(files_.training),
      progress_(screen(open_line), run_.total_steps),
      sinks_(run_.sinks, run_.told, [this](const std::string& text) { warn(text); }),
      skipped_(run_.max_skipped_updates) {
  for (const auto& [set, file] : files_.validation) validation_.emplace(set, file);
  if (!files_.samples.empty()) samples_.emplace(files_.samples);
  for (const std::string& note : files_.notes) warn(note);
}

void Journal::trained(Trained step, bool known) {
  log();
  unlogged_.push_back(std::move(step));
  if (known) log();
}

void Journal::log(double seconds) {
  std::vector<Trained> steps = std::exchange(unlogged_, {});
  for (Trained& step : steps) {
    if (seconds > 0) step.seconds = seconds / static_cast<double>(steps.size());
    write(step);
  }
}

void Journal::write(const Trained& step) {
  const StepReport& report = step.report;
  TrainingRecord record;
  record.step = step.step;
  record.epoch = step.epoch;
  record.loss = report.loss.item<double>();
  record.grad_norm = report.grad_norm.item<double>();
  record.lr = step.lr;
  record.skipped = report.skipped();
  if (std::isnan(record.grad_norm)) record.grad_norm = NAN;  // avoids printing a sign
  record.mem = step.peak_memory;
  record.num_tokens_per_step = step.tokens;
  record.num_label_tokens = report.label_tokens;
  record.padding = step.padding;
  record.step_time = step.seconds;
  record.tps = static_cast<double>(step.tokens) / step.seconds;
  record.tps_per_gpu = record.tps / run_.ranks;
  if (const auto rate = run_.flops.rate(step.tokens, step.seconds)) {
    record.tflops = rate->tflops;
    record.mfu = rate->mfu;
  }
  record.sides = read_sides(report.side_values);
  metrics_.append(to_json(record, timestamp_now()));
  sinks_.record(to_record(record));
  files_.trained.push_back({record.step, record.loss, record.skipped});
  skipped_.add(record.skipped, record.loss);
  progress_.show(record);
  warn(record);
}

void Journal::warn(const TrainingRecord& record) {
  const std::string step = "step " + std::to_string(record.step + 1) + ": ";
  if (record.skipped) {
    const std::optional<int64_t> most = run_.max_skipped_updates;
    const bool by_loss = std::isfinite(record.grad_norm) && !std::isfinite(record.loss);
    warn(step + "update skipped: " +
         (by_loss ? "the loss is " + number_text(record.loss)
                  : "the gradient norm is " + number_text(record.grad_norm)) +
         "; " + std::to_string(skipped_.in_a_row()) + " in a row" +
         (most ? ", the run stops at " + std::to_string(*most) : ""));
  }
}

void Journal::validated(int64_t step, int64_t epoch, const Validated& validation) {
  const auto& [set, loss, label_tokens, lr, parts] = validation;
  const ValidationRecord record{step, epoch, loss, lr, label_tokens, parts};
  validation_.at(set).append(to_json(record, timestamp_now()));
  sinks_.record(to_record(record, set));
  files_.validated[set].push_back({step, loss});
  char text[96];
  std::snprintf(text, sizeof(text), "validation%s%s  step %lld  loss %.4f  (%lld tokens)",
                set.empty() ? "" : " ", set.c_str(), static_cast<long long>(step + 1), loss,
                static_cast<long long>(label_tokens));
  progress_.note(text);
}

void Journal::sampled(const SampleRecord& sample) {
  samples_->append(to_json(sample, timestamp_now()));
  progress_.note("sample  step " + std::to_string(sample.step + 1) + "  " + quoted(sample.prompt) + " -> " +
                 quoted(sample.text));
}

void Journal::saved(int64_t step, const std::filesystem::path& directory) {
  progress_.note("saved " + directory.string() + " after step " + std::to_string(step + 1) +
                 " (counted from 0: step " + std::to_string(step) + ")");
}

void Journal::warn(const std::string& text) {
  progress_.finish();
  std::cerr << "warning: " << text << std::endl;
}

void Journal::finish() {
  sinks_.finish();
  progress_.finish();
  if (!run_.owner.saves) return;
  const std::filesystem::path file = run_.owner.directory / kLossCurve;
  const std::string svg = loss_curve_svg(files_.trained, files_.validated);
  try {
    checkpoint::make_directories(file.parent_path());
    checkpoint::FileWriter writer(file.string());
    writer.write(svg.data(), svg.size());
    writer.finish();
    curve_ = file.string();
  } catch (const Error& error) {  // the run is done and everything important is saved
    warn(std::string("no loss curve: ") + error.what());
  }
}

}  // namespace heddle
