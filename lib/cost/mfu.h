// Model FLOP/s per rank, and their share of the peak (MFU, after Chowdhery et al. 2022).
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>

#include "heddle/config/setup.h"
#include "heddle/model/family.h"

namespace heddle {

// Peak FLOP/s of one rank.
struct PeakFlops {
  double flops = 0;    // 0: unknown
  std::string source;  // "given", "H100 in 16 bits", "measured"
};

// Returns the dtype of products: mixed precision's dtype if the strategy has one, else the storage dtype.
at::ScalarType product_dtype(const Setup& setup, at::ScalarType stored);

// Returns the peak: `option` (--peak-flops) if set; else from the machine files by device name; on the CPU
// the measured rate of one thread in processor time (product_rate_cpu) times the number of threads. The CPU's
// rate is that of bfloat16 if the processor has such instructions (at least twice float32's rate), else of
// float32. `device`: name of a GPU, empty on the CPU. Runs in fp8 use the 16-bit peak, so that their MFU
// compares with that of 16-bit runs.
PeakFlops peak_flops(std::optional<double> option, c10::DeviceType type, const std::string& device,
                     at::ScalarType dtype);

// TFLOP/s of a rank, and the share of the peak in percent; empty: the peak is unknown.
struct FlopRate {
  double tflops = 0;
  std::optional<double> mfu;
};

class ModelFlops {
 public:
  ModelFlops() = default;  // everything unknown
  // per_token: FLOPs of one token, forward and backward.
  ModelFlops(double per_token, int ranks, PeakFlops peak);

  // Returns the rate of a step over all ranks; empty if FLOPs are unknown. `mfu` is empty if it would exceed
  // 100 %, because then the peak was measured while other work ran.
  std::optional<FlopRate> rate(int64_t tokens, double seconds) const;
  // Returns "12.3 GFLOP per token; peak per rank 989 TFLOP/s (H100 in 16 bits)"; "" if everything is unknown.
  std::string text() const;

 private:
  double per_token_ = 0;
  int ranks_ = 1;
  PeakFlops peak_;
};

// Returns the share of FLOPs that remains: frozen parameters need no gradients, which are a third of the
// FLOPs.
double trained_share(int64_t parameters, int64_t frozen);

// Returns the FLOPs of forward and backward over `samples` rows of `tokens` tokens by AutoModel's formula for
// the model_type (ModelFacts::benchmark), with the Hugging Face keys of `config_json`. For comparison with
// AutoModel's benchmarks; ModelSpec::flops_per_token counts what the model computes.
double automodel_flops(const ModelFacts& facts, const std::string& config_json, int64_t samples,
                       int64_t tokens);

// Returns AutoModel's MFU in percent: `tflop` per step, divided by the product of `ranks`, the peak and
// `seconds`. 0 if the peak or the time is 0.
double automodel_mfu(double tflop, int ranks, double seconds, double peak_tflops);

}  // namespace heddle
