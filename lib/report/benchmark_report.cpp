// Prints a benchmark's results and writes them as JSON.
#include "lib/report/benchmark_report.h"

#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "lib/cost/mfu.h"

namespace heddle {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTotal = "total_steps";
constexpr const char* kAverage = "avg_iter_time_seconds";
constexpr const char* kWork = "tflops_per_gpu";

__attribute__((format(printf, 1, 2))) std::string line(const char* format, ...) {
  char text[256];
  va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return text;
}

std::string share(const std::optional<double>& mfu) {
  return mfu ? line("%f%%", *mfu)
             : "unknown, because the device's peak is unknown; set benchmark.peak_tflops";
}

std::string spread(const std::string& name, const Spread& times) {
  return name + line(" (%.2f, %.2f)", times.fastest * 1e3, times.slowest * 1e3);
}

}  // namespace

BenchmarkReport::BenchmarkReport(BenchmarkFacts facts) : facts_(std::move(facts)) {}

std::optional<double> BenchmarkReport::mfu(double seconds) const {
  if (!facts_.peak_tflops) return std::nullopt;
  return automodel_mfu(facts_.tflop, facts_.ranks, seconds, *facts_.peak_tflops);
}

double BenchmarkReport::average() const {
  if (is_warm()) return seconds_ / static_cast<double>(facts_.steps - facts_.warmup_steps);
  return warmup_seconds_ / static_cast<double>(facts_.steps);
}

std::string BenchmarkReport::add(const TimedStep& step) {
  const bool warms_up = step.step < facts_.warmup_steps;
  (warms_up ? warmup_seconds_ : seconds_) += step.iteration.slowest;
  std::string out =
      line("iteration %lld of %lld%s | num_label_tokens=%lld | max memory: %.2f GiB | loss=%.4f\n",
           static_cast<long long>(step.step + 1), static_cast<long long>(facts_.steps),
           warms_up ? " (warmup)" : "", static_cast<long long>(step.label_tokens), step.mem, step.loss);
  out += line("  Max iter time: %f seconds\n", step.iteration.slowest);
  out += "  MFU: " + share(mfu(step.iteration.slowest)) + "\n";
  out += "  milliseconds (fastest rank, slowest rank): " + spread("iteration", step.iteration);
  if (step.forward_backward.empty()) return out + "\n";
  out += ", " + spread("optimizer", step.optimizer);
  for (size_t i = 0; i < step.forward_backward.size(); ++i)
    out += ", " + spread("forward_backward_" + std::to_string(i), step.forward_backward[i]);
  return out + "\n";
}

std::string BenchmarkReport::summary() const {
  const auto warmup = static_cast<long long>(facts_.warmup_steps), all = static_cast<long long>(facts_.steps);
  const std::string of = is_warm() ? line(" (excluding first %lld warmup iterations)", warmup)
                                   : line(" (all %lld iterations)", all);
  return line("Total setup time: %.2f seconds\n", facts_.setup.slowest) +
         line("Total warmup time (%lld steps): %.2f seconds\n", is_warm() ? warmup : all, warmup_seconds_) +
         line("Total iteration time (%lld steps): %.2f seconds\n", is_warm() ? all - warmup : 0LL, seconds_) +
         line("Average iteration time: %.3f seconds", average()) + of +
         "\nAverage MFU: " + share(mfu(average())) + of + "\n";
}

std::string BenchmarkReport::json() const {
  const auto or_null = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json(nullptr);
  };
  Json out;
  out[kTotal] = facts_.steps;
  out["warmup_steps"] = facts_.warmup_steps;
  out["training_steps"] = facts_.steps - facts_.warmup_steps;
  out["setup_time_seconds"] = facts_.setup.slowest;
  out["warmup_time_seconds"] = warmup_seconds_;
  out["training_time_seconds"] = seconds_;
  out[kAverage] = average();
  out["avg_mfu_percent"] = or_null(mfu(average()));
  out[kWork] = facts_.tflop;
  out["peak_tflops"] = or_null(facts_.peak_tflops);
  out["world_size"] = facts_.ranks;
  out["global_batch_size"] = facts_.global_batch_size;
  out["local_batch_size"] = facts_.local_batch_size;
  out["seq_len"] = facts_.row_length;
  return out.dump(2) + "\n";
}

bool is_benchmark_file(const std::filesystem::path& file) {
  constexpr std::streamsize kMost = 1 << 14;
  std::ifstream in(file, std::ios::binary);
  std::string text(kMost, '\0');
  in.read(text.data(), kMost);
  text.resize(static_cast<size_t>(in.gcount()));
  const Json found = Json::parse(text, nullptr, false);
  return found.is_object() && found.contains(kTotal) && found.contains(kAverage) && found.contains(kWork);
}

}  // namespace heddle
