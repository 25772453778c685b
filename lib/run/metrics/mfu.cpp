// The table of GPUs, and the measured peak of a CPU.
#include "lib/run/metrics/mfu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <utility>

#include "heddle/transport/rank_place.h"
#include "lib/nn/measure/product_rate_cpu.h"
#include "lib/run/metrics/processor.h"

namespace heddle {
namespace {

// Dense products, in TFLOP/s: 16-bit floats as AutoModel lists them, and float32 without TF32 as the vendors
// publish them; 0: not known. A longer name stands before a shorter one that it contains.
struct Gpu {
  const char* name;
  double half, single;
};
constexpr std::array<Gpu, 19> kGpus = {{{"RTX PRO 6000 Blackwell Max-Q", 438.9, 0},
                                        {"RTX PRO 6000 Blackwell", 503.8, 0},
                                        {"RTX 3070 Ti", 21.75, 21.75},
                                        {"Ascend910", 354, 0},
                                        {"MI300X", 1336, 163.4},
                                        {"GB200", 2500, 80},
                                        {"B200", 2250, 80},
                                        {"H100", 989, 67},
                                        {"H200", 989, 67},
                                        {"H800", 989, 67},
                                        {"A100", 312, 19.5},
                                        {"A800", 312, 19.5},
                                        {"V100", 125, 15.7},
                                        {"910B", 354, 0},
                                        {"L40S", 362.05, 91.6},
                                        {"L20", 119.5, 59.8},
                                        {"L40", 181.05, 90.5},
                                        {"A40", 149.7, 37.4},
                                        {"H20", 148, 44}}};

// "NVIDIA A40" is an A40, "NVIDIA RTX A4000" is not.
bool is_named(const std::string& device, const std::string& gpu) {
  const size_t at = device.find(gpu);
  if (at == device.npos) return false;
  const size_t end = at + gpu.size();
  return end == device.size() || std::isdigit(static_cast<unsigned char>(device[end])) == 0;
}

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

at::ScalarType product_dtype(const RunSpec& run) {
  const Node* policy = run.setup.strategy_config.find("mp_policy");
  const Node* dtype = policy == nullptr || !policy->is_map() ? nullptr : policy->find("param_dtype");
  if (dtype == nullptr || dtype->is_null()) return run.model.dtype;
  return dtype->as_text() == "bfloat16"  ? at::kBFloat16
         : dtype->as_text() == "float16" ? at::kHalf
                                         : at::kFloat;
}

PeakFlops peak_flops(std::optional<double> given, c10::DeviceType type, const std::string& device,
                     at::ScalarType dtype) {
  if (given) return {*given, "given"};
  if (type == c10::DeviceType::CPU) return {fastest_on_cpu(), "measured"};
  const bool half = dtype == at::kBFloat16 || dtype == at::kHalf;
  for (const Gpu& gpu : kGpus)
    if (is_named(device, gpu.name) && (half || gpu.single > 0))
      return {(half ? gpu.half : gpu.single) * 1e12,
              std::string(gpu.name) + " in " + (half ? "16 bits" : "float32")};
  return {};
}

PeakFlops peak_of(const RunSpec& run, const engine::Model& model) {
  const std::optional<BenchmarkSection>& benchmark = run.recipe.benchmark;
  const std::optional<double> in_file =
      benchmark && benchmark->peak_tflops ? benchmark->peak_tflops : run.recipe.mfu.peak_tflops;
  const std::optional<double> given =
      run.peak_flops || !in_file ? run.peak_flops : std::optional(*in_file * 1e12);
  const at::ScalarType dtype = product_dtype(run);
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
