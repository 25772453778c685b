// Peaks of GPUs, and the measured peak of a CPU.
#include "lib/run/metrics/mfu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "heddle/transport/rank_place.h"
#include "lib/cost/machine.h"
#include "lib/cost/processor.h"
#include "lib/nn/measure/product_rate_cpu.h"

namespace heddle {
namespace {

// Of all threads of this rank; threads beyond the cores add nothing.
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

at::ScalarType product_dtype(const Setup& setup, const PreparedModel& model) {
  const Node* policy = setup.strategy_config.find("mp_policy");
  const Node* dtype = policy == nullptr || !policy->is_map() ? nullptr : policy->find("param_dtype");
  if (dtype == nullptr || dtype->is_null()) return model.dtype;
  return dtype->as_text() == "bfloat16"  ? at::kBFloat16
         : dtype->as_text() == "float16" ? at::kHalf
                                         : at::kFloat;
}

PeakFlops peak_flops(std::optional<double> given, c10::DeviceType type, const std::string& device,
                     at::ScalarType dtype) {
  if (given) return {*given, "given"};
  if (type == c10::DeviceType::CPU) return {fastest_on_cpu(), "measured"};
  const bool half = dtype == at::kBFloat16 || dtype == at::kHalf;
  const MachineFile* const machine = machine_of(device);
  const double peak = machine == nullptr ? 0 : half ? machine->peak_16 : machine->peak_32;
  if (peak == 0) return {};
  return {peak, machine->device + " in " + (half ? "16 bits" : "float32")};
}

PeakFlops peak_of(const RunSpec& run, const engine::Model& model) {
  const std::optional<BenchmarkSection>& benchmark = run.recipe.benchmark;
  const std::optional<double> in_file =
      benchmark && benchmark->peak_tflops ? benchmark->peak_tflops : run.recipe.mfu.peak_tflops;
  const std::optional<double> given =
      run.peak_flops || !in_file ? run.peak_flops : std::optional(*in_file * 1e12);
  const at::ScalarType dtype = product_dtype(run.setup, run.model);
  if (const auto& name = run.recipe.mfu.device) return peak_flops(given, c10::DeviceType::CUDA, *name, dtype);
  return peak_flops(given, model.mesh.device().type(), model.device ? model.device->name() : "", dtype);
}

ModelFlops::ModelFlops(double per_token, int ranks, PeakFlops peak)
    : per_token_(per_token), ranks_(ranks), peak_(std::move(peak)) {}

void ModelFlops::add_to(TrainingRecord& record) const {
  if (per_token_ <= 0) return;
  const double flops =
      per_token_ * static_cast<double>(record.num_tokens_per_step) / record.step_time / ranks_;
  record.tflops = flops / 1e12;
  if (peak_.flops > 0 && flops <= peak_.flops) record.mfu = flops / peak_.flops * 100;
}

std::string ModelFlops::text() const {
  if (per_token_ <= 0) return "";
  return amount(per_token_) + "FLOP a token, forward and backward; peak of a rank " +
         (peak_.flops > 0 ? amount(peak_.flops) + "FLOP/s (" + peak_.source + ")"
                          : std::string("not known: --peak-flops gives it"));
}

ModelFlops flops_of(const RunSpec& run, const engine::Model& model, double trained_share) {
  // Of ragged rows the mean: attention costs more in longer ones.
  const int64_t length =
      run.dataset.is_ragged() ? std::llround(run.dataset.mean_text()) : run.dataset.length();
  const double per_token = run.model.spec->flops_per_token(length) * trained_share;
  return {per_token, run.setup.sizes.world, peak_of(run, model)};
}

double trained_share(int64_t parameters, int64_t frozen) {
  if (parameters == 0) return 1;
  return (2 + static_cast<double>(parameters - frozen) / static_cast<double>(parameters)) / 3;
}

}  // namespace heddle
