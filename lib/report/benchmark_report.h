// The figures of a benchmark: its lines and its file, in NeMo AutoModel's words and keys.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

// Seconds of the fastest and the slowest rank.
struct Spread {
  double fastest = 0, slowest = 0;
};

struct TimedStep {
  int64_t step = 0;  // from 0
  double loss = 0;   // the mean over the label tokens
  int64_t label_tokens = 0;
  double mem = 0;                        // GiB at most so far, of rank 0
  Spread iteration, optimizer;           // optimizer: not known (0) in a step that is traced
  std::vector<Spread> forward_backward;  // of each microbatch, or pass through a pipeline
};

struct BenchmarkFacts {
  int64_t steps = 0, warmup_steps = 0;
  double tflop = 0;                   // of the model in one step of all ranks, in 1e12; see automodel_flops()
  std::optional<double> peak_tflops;  // of a rank; empty: not known
  int ranks = 1;
  int64_t global_batch_size = 0, local_batch_size = 0, row_length = 0;
  Spread setup;
};

class BenchmarkReport {
 public:
  explicit BenchmarkReport(BenchmarkFacts facts);

  // Takes the times of a step, and gives its lines.
  std::string add(const TimedStep& step);
  // After the last step: totals and averages, as lines and as a JSON object of several lines.
  std::string summary() const;
  std::string json() const;

 private:
  bool is_warm() const { return facts_.steps > facts_.warmup_steps; }
  double average() const;  // seconds of a step
  std::optional<double> mfu(double seconds) const;

  BenchmarkFacts facts_;
  double warmup_seconds_ = 0, seconds_ = 0;  // of the slowest rank in each step
};

// Whether the file holds the figures of a benchmark, heddle's or AutoModel's.
bool is_benchmark_file(const std::filesystem::path& file);

}  // namespace heddle
