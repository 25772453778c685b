// The table of GPUs.
#include "lib/cost/gpus.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace heddle {
namespace {

// A longer name stands before a shorter one that it contains. Where a GPU has several sizes of memory, the
// largest.
constexpr std::array<Gpu, 19> kGpus = {{{"RTX PRO 6000 Blackwell Max-Q", 438.9, 0, 96, 1.792},
                                        {"RTX PRO 6000 Blackwell", 503.8, 0, 96, 1.792},
                                        {"RTX 3070 Ti", 21.75, 21.75, 8, 0.608},
                                        {"Ascend910", 354, 0, 0, 0},
                                        {"MI300X", 1336, 163.4, 192, 5.3},
                                        {"GB200", 2500, 80, 186, 8},
                                        {"B200", 2250, 80, 180, 8},
                                        {"H100", 989, 67, 80, 3.35},
                                        {"H200", 989, 67, 141, 4.8},
                                        {"H800", 989, 67, 80, 3.35},
                                        {"A100", 312, 19.5, 80, 2.039},
                                        {"A800", 312, 19.5, 80, 2.039},
                                        {"V100", 125, 15.7, 32, 0.9},
                                        {"910B", 354, 0, 0, 0},
                                        {"L40S", 362.05, 91.6, 48, 0.864},
                                        {"L20", 119.5, 59.8, 48, 0.864},
                                        {"L40", 181.05, 90.5, 48, 0.864},
                                        {"A40", 149.7, 37.4, 48, 0.696},
                                        {"H20", 148, 44, 96, 4}}};

bool is_named(const std::string& device, const std::string& gpu) {
  const size_t at = device.find(gpu);
  if (at == device.npos) return false;
  const size_t end = at + gpu.size();
  return end == device.size() || std::isdigit(static_cast<unsigned char>(device[end])) == 0;
}

}  // namespace

const Gpu* gpu_of(const std::string& device) {
  for (const Gpu& gpu : kGpus)
    if (is_named(device, gpu.name)) return &gpu;
  return nullptr;
}

const Gpu* gpu_named(const std::string& name) {
  const auto alike = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  for (const Gpu& gpu : kGpus)
    if (std::ranges::equal(std::string_view(gpu.name), name, alike)) return &gpu;
  return nullptr;
}

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  for (const Gpu& gpu : kGpus) names.emplace_back(gpu.name);
  return names;
}

}  // namespace heddle
