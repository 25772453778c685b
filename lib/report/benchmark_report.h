// Results of a benchmark, printed and written with NeMo AutoModel's words and keys.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

// Seconds of the fastest and of the slowest rank.
struct Spread {
  double fastest = 0, slowest = 0;
};

struct TimedStep {
  int64_t step = 0;  // counts from 0
  double loss = 0;   // mean over the label tokens
  int64_t label_tokens = 0;
  double mem = 0;                        // peak GiB so far, on rank 0
  Spread iteration, optimizer;           // optimizer: unknown (0) in a traced step
  std::vector<Spread> forward_backward;  // per microbatch, or per pass through a pipeline
};

struct BenchmarkFacts {
  int64_t steps = 0, warmup_steps = 0;
  double tflop = 0;                   // TFLOP of the model in one step on all ranks; see automodel_flops()
  std::optional<double> peak_tflops;  // per rank; empty: unknown
  int ranks = 1;
  int64_t global_batch_size = 0, local_batch_size = 0, row_length = 0;
  Spread setup;
};

class BenchmarkReport {
 public:
  explicit BenchmarkReport(BenchmarkFacts facts);

  // Records the times of a step and returns its lines.
  std::string add(const TimedStep& step);
  // Returns totals and averages after the last step, as text and as an indented JSON object.
  std::string summary() const;
  std::string json() const;

 private:
  bool is_warm() const { return facts_.steps > facts_.warmup_steps; }
  double average() const;  // seconds per step
  std::optional<double> mfu(double seconds) const;

  BenchmarkFacts facts_;
  double warmup_seconds_ = 0, seconds_ = 0;  // of the slowest rank in each step
};

// Whether the file contains benchmark results of heddle or AutoModel.
bool is_benchmark_file(const std::filesystem::path& file);

}  // namespace heddle
