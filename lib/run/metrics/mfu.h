// How much of its device's peak a run uses: model FLOP/s per rank, and their share of the peak (MFU, after
// Chowdhery et al. 2022).
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "heddle/engine/engine.h"
#include "lib/report/metrics.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// Operations a second of one rank's products at best.
struct PeakFlops {
  double flops = 0;    // 0: not known
  std::string source;  // "given", "H100 in 16 bits", "measured"
};

// What products are computed in: mixed precision's dtype where the strategy has one, else the storage's.
at::ScalarType product_dtype(const Setup& setup, const PreparedModel& model);

// Of --peak-flops where it is given; else of a table of GPUs, by the device's name; on the CPU that of one
// thread, measured by its processor time (product_rate_cpu), times the threads: in bfloat16 where the
// processor has such products (at least twice float32's), else in float32. `device` is the name of a GPU,
// empty on the CPU.
PeakFlops peak_flops(std::optional<double> given, c10::DeviceType type, const std::string& device,
                     at::ScalarType dtype);

// Of this rank of a run: of --peak-flops, the section benchmark or mfu, or of the device.
PeakFlops peak_of(const RunSpec& run, const engine::Model& model);

class ModelFlops {
 public:
  ModelFlops() = default;  // nothing is known
  // Operations of one token, forward and backward.
  ModelFlops(double per_token, int ranks, PeakFlops peak);

  // Sets tflops and mfu from the tokens and the time of the step. A share above 100 % says that the peak is
  // wrong, as it was measured beside other work: mfu then stays empty.
  void add_to(TrainingRecord& record) const;
  // "12.3 GFLOP a token; peak of a rank 989 TFLOP/s (H100 in 16 bits)"; "" where nothing is known.
  std::string text() const;

 private:
  double per_token_ = 0;
  int ranks_ = 1;
  PeakFlops peak_;
};

// Of a run on this rank: its model, its sequences and its device. `trained_share` scales the operations.
ModelFlops flops_of(const RunSpec& run, const engine::Model& model, double trained_share);

// Of parameters that are frozen no gradients are computed, which are a third of the operations.
double trained_share(int64_t parameters, int64_t frozen);

}  // namespace heddle
