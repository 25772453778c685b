// What rank 0 keeps and shows of a run.
#include "lib/run/metrics/journal.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/safetensors/file_writer.h"
#include "lib/data/batches.h"
#include "lib/nn/experts/load_summary.h"

namespace heddle {
namespace {

// Tokens of a step that do not fill rows.
int64_t text_tokens(const RunSpec& run, const StepInfo& info) {
  const Rows& rows = run.dataset;
  if (rows.packing() == nullptr && !rows.is_uneven()) return (info.end - info.begin) * rows.length();
  const SampleOrder order = order_of(run, info.epoch);
  int64_t tokens = 0;
  for (int64_t place = info.begin; place < info.end; ++place) tokens += rows.text_of(order[place]);
  return tokens;
}

// Empty where every row is full.
std::optional<double> padding_of(const RunSpec& run, const StepInfo& info, int64_t text) {
  const Rows& rows = run.dataset;
  if (rows.packing() == nullptr && !rows.is_uneven()) return std::nullopt;
  const BatchSplit split{run.recipe.steps.local_batch_size, run.setup.sizes.dp, 0};
  const int64_t all = computed_tokens(rows, split, order_of(run, info.epoch), info.begin, info.end);
  return 1 - static_cast<double>(text) / static_cast<double>(all);
}

Screen screen(StopRequest& shared) {
  std::function<size_t()> columns;
  if (isatty(STDOUT_FILENO)) columns = [] { return terminal_columns(STDOUT_FILENO); };
  return {std::cout, columns, shared.open_line};
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

Journal::Journal(const RunSpec& run, ModelFlops flops, StopRequest& shared)
    : run_(run),
      flops_(std::move(flops)),
      files_(take_metrics_files(run)),
      metrics_(files_.training),
      progress_(screen(shared), run.scheduler.total_steps()),
      sinks_(run.recipe.sections, facts_of(run), [this](const std::string& text) { warn(text); }),
      skipped_(run.recipe.steps.max_skipped_updates) {
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
  const auto& [info, report, lr, seconds, peak_memory] = step;
  TrainingRecord record;
  record.step = info.step;
  record.epoch = info.epoch;
  record.loss = report.loss.item<double>();
  record.grad_norm = report.grad_norm.item<double>();
  record.lr = lr;
  record.skipped = report.skipped();
  if (std::isnan(record.grad_norm)) record.grad_norm = NAN;  // a sign would be printed
  record.mem = peak_memory;
  record.num_tokens_per_step = text_tokens(run_, info);
  record.num_label_tokens = report.label_tokens;
  record.padding = padding_of(run_, info, record.num_tokens_per_step);
  record.step_time = seconds;
  record.tps = static_cast<double>(record.num_tokens_per_step) / seconds;
  record.tps_per_gpu = record.tps / run_.setup.sizes.world;
  flops_.add_to(record);
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
    const std::optional<int64_t> most = run_.recipe.steps.max_skipped_updates;
    const bool by_loss = std::isfinite(record.grad_norm) && !std::isfinite(record.loss);
    warn(step + "update skipped: " +
         (by_loss ? "the loss is " + number_text(record.loss)
                  : "the gradient norm is " + number_text(record.grad_norm)) +
         "; " + std::to_string(skipped_.in_a_row()) + " in a row" +
         (most ? ", the run ends at " + std::to_string(*most) : ""));
  }
}

void Journal::validated(const StepInfo& info, const Validated& one) {
  const auto& [set, loss, label_tokens, lr, parts] = one;
  const ValidationRecord record{info.step, info.epoch, loss, lr, label_tokens, parts};
  validation_.at(set).append(to_json(record, timestamp_now()));
  sinks_.record(to_record(record, set));
  files_.validated[set].push_back({info.step, loss});
  char text[96];
  std::snprintf(text, sizeof(text), "validation%s%s  step %lld  loss %.4f  (%lld tokens)",
                set.empty() ? "" : " ", set.c_str(), static_cast<long long>(info.step + 1), loss,
                static_cast<long long>(label_tokens));
  progress_.note(text);
}

void Journal::sampled(const SampleRecord& one) {
  samples_->append(to_json(one, timestamp_now()));
  progress_.note("sample  step " + std::to_string(one.step + 1) + "  " + quoted(one.prompt) + " -> " +
                 quoted(one.text));
}

void Journal::saved(const StepInfo& info, const std::filesystem::path& directory) {
  progress_.note("saved " + directory.string() + " after step " + std::to_string(info.step + 1) +
                 " (counted from 0: step " + std::to_string(info.step) + ")");
}

void Journal::warn(const std::string& text) {
  progress_.finish();
  std::cerr << "warning: " << text << std::endl;
}

void Journal::finish() {
  sinks_.finish();
  progress_.finish();
  if (!run_.recipe.checkpoint.enabled) return;
  const std::filesystem::path file = std::filesystem::path(run_.recipe.checkpoint.directory) / kLossCurve;
  const std::string svg = loss_curve_svg(files_.trained, files_.validated);
  try {
    checkpoint::make_directories(file.parent_path());
    checkpoint::FileWriter writer(file.string());
    writer.write(svg.data(), svg.size());
    writer.finish();
    curve_ = file.string();
  } catch (const Error& error) {  // the run is done, and all that matters is saved
    warn(std::string("no loss curve: ") + error.what());
  }
}

}  // namespace heddle
