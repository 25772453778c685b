// Peaks of GPUs from machine files, and the measured peak of a CPU.
#include "lib/cost/mfu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "heddle/decoder/benchmark.h"
#include "heddle/transport/rank_place.h"
#include "lib/checkpoint/huggingface/read_config.h"
#include "lib/cost/machine.h"
#include "lib/cost/processor.h"
#include "lib/nn/measure/product_rate_cpu.h"

namespace heddle {
namespace {

// FLOP/s of all threads of this rank; threads beyond the number of cores add nothing.
double fastest_on_cpu() {
  const double single = model::product_rate_cpu(at::kFloat);
  const double fastest =
      has_bfloat16_products() ? std::max(2 * single, model::product_rate_cpu(at::kBFloat16)) : single;
  return fastest * std::min(at::get_num_threads(), threads_per_rank(1));
}

std::string amount(double flops) {
  constexpr std::array<std::pair<double, const char*>, 5> kUnits = {
      {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
  char text[32];
  for (const auto& [size, letter] : kUnits)
    if (flops >= size) {
      std::snprintf(text, sizeof text, "%.3g %s", flops / size, letter);
      return text;
    }
  std::snprintf(text, sizeof text, "%.3g ", flops);
  return text;
}

}  // namespace

at::ScalarType product_dtype(const Setup& setup, at::ScalarType stored) {
  const Node* policy = setup.strategy_config.find("mp_policy");
  const Node* dtype = policy == nullptr || !policy->is_map() ? nullptr : policy->find("param_dtype");
  if (dtype == nullptr || dtype->is_null()) return stored;
  return dtype->as_text() == "bfloat16"  ? at::kBFloat16
         : dtype->as_text() == "float16" ? at::kHalf
                                         : at::kFloat;
}

PeakFlops peak_flops(std::optional<double> option, c10::DeviceType type, const std::string& device,
                     at::ScalarType dtype) {
  if (option) return {*option, "given"};
  if (type == c10::DeviceType::CPU) return {fastest_on_cpu(), "measured"};
  const bool half = dtype == at::kBFloat16 || dtype == at::kHalf;
  const MachineFile* const machine = machine_of(device);
  const double peak = machine == nullptr ? 0 : half ? machine->peak_16 : machine->peak_32;
  if (peak == 0) return {};
  return {peak, machine->device + " in " + (half ? "16 bits" : "float32")};
}

ModelFlops::ModelFlops(double per_token, int ranks, PeakFlops peak)
    : per_token_(per_token), ranks_(ranks), peak_(std::move(peak)) {}

std::optional<FlopRate> ModelFlops::rate(int64_t tokens, double seconds) const {
  if (per_token_ <= 0) return std::nullopt;
  const double flops = per_token_ * static_cast<double>(tokens) / seconds / ranks_;
  FlopRate out{flops / 1e12, std::nullopt};
  if (peak_.flops > 0 && flops <= peak_.flops) out.mfu = flops / peak_.flops * 100;
  return out;
}

std::string ModelFlops::text() const {
  if (per_token_ <= 0) return "";
  return amount(per_token_) + "FLOP per token, forward and backward; peak per rank " +
         (peak_.flops > 0 ? amount(peak_.flops) + "FLOP/s (" + peak_.source + ")"
                          : std::string("unknown: set it with --peak-flops"));
}

double trained_share(int64_t parameters, int64_t frozen) {
  if (parameters == 0) return 1;
  return (2 + static_cast<double>(parameters - frozen) / static_cast<double>(parameters)) / 3;
}

double automodel_flops(const ModelFacts& facts, const std::string& config_json, int64_t samples,
                       int64_t tokens) {
  const BenchmarkSizes sizes(checkpoint::parse_config_json(config_json, "config.json"), samples, tokens);
  return facts.benchmark == nullptr ? decoder::general_benchmark(sizes) : facts.benchmark(sizes);
}

double automodel_mfu(double tflop, int ranks, double seconds, double peak_tflops) {
  if (peak_tflops <= 0 || seconds <= 0) return 0;
  return tflop / (ranks * seconds) / peak_tflops * 100;
}

}  // namespace heddle
