// Sends records to metrics plugins and closes those that fail.
#include "lib/report/sinks.h"

#include <chrono>
#include <utility>

#include "heddle/base/error.h"

namespace heddle {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

MetricsRecord to_record(const TrainingRecord& record) {
  const auto number = [](const auto& value) { return std::vector<double>{static_cast<double>(value)}; };
  MetricsRecord out{MetricsRecord::Kind::training, "", record.step, record.epoch, now(), {}};
  out.fields = {{"loss", number(record.loss)},
                {"grad_norm", number(record.grad_norm)},
                {"lr", number(record.lr)},
                {"skipped", number(record.skipped)},
                {"mem", number(record.mem)},
                {"tps", number(record.tps)},
                {"tps_per_gpu", number(record.tps_per_gpu)}};
  if (record.mfu) out.fields.push_back({"mfu", number(*record.mfu)});
  if (record.tflops) out.fields.push_back({"tflops", number(*record.tflops)});
  out.fields.push_back({"num_tokens_per_step", number(record.num_tokens_per_step)});
  out.fields.push_back({"num_label_tokens", number(record.num_label_tokens)});
  if (record.padding) out.fields.push_back({"padding", number(*record.padding)});
  out.fields.push_back({"step_time", number(record.step_time)});
  for (const SideRecord& side : record.sides) out.fields.push_back({side.name, side.values});
  return out;
}

MetricsRecord to_record(const ValidationRecord& record, const std::string& set) {
  MetricsRecord out{MetricsRecord::Kind::validation, set, record.step, record.epoch, now(), {}};
  out.fields = {{"loss", {record.loss}},
                {"lr", {record.lr}},
                {"num_label_tokens", {static_cast<double>(record.num_label_tokens)}}};
  for (const SideRecord& side : record.sides) out.fields.push_back({side.name, side.values});
  return out;
}

Sinks::Sinks(const std::vector<SinkSection>& sections, const MetricsRun& run, Warn warn)
    : warn_(std::move(warn)) {
  for (const SinkSection& section : sections) {
    sinks_.push_back({section.name, section.offered->make(section.values)});
    sinks_.back().metrics->start(run);
  }
}

void Sinks::each(const std::function<void(IMetrics&)>& call) {
  for (Sink& sink : sinks_) {
    if (!sink.metrics) continue;
    try {
      call(*sink.metrics);
    } catch (const Error& error) {
      sink.metrics.reset();
      warn_(sink.name + " gets no more metrics, but the run continues: " + error.message());
    }
  }
}

void Sinks::record(const MetricsRecord& record) {
  each([&](IMetrics& sink) { sink.record(record); });
}

void Sinks::finish() {
  each([](IMetrics& sink) { sink.finish(); });
}

}  // namespace heddle
