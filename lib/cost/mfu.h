// How much of its device's peak a run uses: model FLOP/s per rank, and their share of the peak (MFU, after
// Chowdhery et al. 2022).
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>

#include "heddle/config/setup.h"
#include "heddle/model/family.h"

namespace heddle {

// Operations a second of one rank's products at best.
struct PeakFlops {
  double flops = 0;    // 0: not known
  std::string source;  // "given", "H100 in 16 bits", "measured"
};

// What products are computed in: mixed precision's dtype where the strategy has one, else the storage's.
at::ScalarType product_dtype(const Setup& setup, at::ScalarType stored);

// Of --peak-flops where it is given; else of a table of GPUs, by the device's name; on the CPU that of one
// thread, measured by its processor time (product_rate_cpu), times the threads: in bfloat16 where the
// processor has such products (at least twice float32's), else in float32. `device` is the name of a GPU,
// empty on the CPU.
PeakFlops peak_flops(std::optional<double> given, c10::DeviceType type, const std::string& device,
                     at::ScalarType dtype);

// Operations a second of a rank, in 1e12, and their share of the peak in percent; empty: the peak is not
// known.
struct FlopRate {
  double tflops = 0;
  std::optional<double> mfu;
};

class ModelFlops {
 public:
  ModelFlops() = default;  // nothing is known
  // Operations of one token, forward and backward.
  ModelFlops(double per_token, int ranks, PeakFlops peak);

  // The rate of a step of all ranks; empty where operations are not known. A share above 100 % says that the
  // peak is wrong, as it was measured beside other work: mfu is then empty.
  std::optional<FlopRate> rate(int64_t tokens, double seconds) const;
  // "12.3 GFLOP a token; peak of a rank 989 TFLOP/s (H100 in 16 bits)"; "" where nothing is known.
  std::string text() const;

 private:
  double per_token_ = 0;
  int ranks_ = 1;
  PeakFlops peak_;
};

// Of parameters that are frozen no gradients are computed, which are a third of the operations.
double trained_share(int64_t parameters, int64_t frozen);

// Floating-point operations of forward and backward over `samples` rows of `tokens` tokens, by the formula
// that AutoModel chooses for the model_type (ModelFacts::benchmark), in Hugging Face's keys of `config_json`.
// Its figures are compared with others of its benchmarks; ModelSpec::flops_per_token counts what the model
// computes.
double automodel_flops(const ModelFacts& facts, const std::string& config_json, int64_t samples,
                       int64_t tokens);

// AutoModel's mfu: `tflop` operations of a step in 1e12, in percent of what `ranks` peaks give in `seconds`.
// 0 where the peak or the time is 0.
double automodel_mfu(double tflop, int ranks, double seconds, double peak_tflops);

}  // namespace heddle
