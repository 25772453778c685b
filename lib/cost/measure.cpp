// Runs heddle's operators and collectives repeatedly, and takes the times of the fastest repetitions.
#include "lib/cost/measure.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "heddle/nn/attention_core.h"
#include "heddle/nn/linear.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSeconds = 0.4;  // minimum time of the repetitions of one measurement
constexpr int kLeast = 5;         // minimum number of repetitions

class Measurement {
 public:
  Measurement(Rendezvous& rendezvous, IDevice* device)
      : device_(device), on_(at::TensorOptions().device(rendezvous.device())) {
    std::vector<int> ranks(static_cast<size_t>(rendezvous.world_size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    if (ranks.size() > 1) group_ = rendezvous.group("measure", ranks);
  }

  MachineFile run() {
    const std::string name = device_ == nullptr ? "cpu" : device_->name();
    const MachineFile* const known = machine_of(name);  // source of figures that are not measured
    MachineFile out = known == nullptr ? MachineFile() : *known;
    out.device = name;
    if (device_ == nullptr) {
      out.multiprocessors = 1;
      out.memory =
          static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)) / ranks();
      out.collective_interference = 0.5;
    }
    moving(out);
    products(out);
    attention(out);
    launches(out);
    collectives(out);
    out.node_devices = ranks();
    return out;
  }

 private:
  int ranks() const { return group_ ? group_->size() : 1; }

  // Runs the work on all ranks at the same time. Returns the median of the faster half of the repetitions.
  double seconds_of(const std::function<void()>& work) {
    work();
    if (device_ != nullptr) device_->synchronize();
    meet();
    std::vector<double> all;
    const Clock::time_point begin = Clock::now();
    double now = 0;
    while (now < kSeconds || all.size() < kLeast) {
      work();
      if (device_ != nullptr) device_->synchronize();
      const double end = std::chrono::duration<double>(Clock::now() - begin).count();
      all.push_back(end - now);
      now = end;
    }
    meet();
    std::sort(all.begin(), all.end());
    return all[all.size() / 4];
  }

  // Repeats a collective equally often on every rank. Returns the median of the faster half.
  double seconds_of_collective(const std::function<std::unique_ptr<Work>()>& post, int repetitions) {
    std::vector<double> all;
    for (int i = 0; i <= repetitions; ++i) {
      meet();
      const Clock::time_point begin = Clock::now();
      post()->wait();
      if (device_ != nullptr) device_->synchronize();
      if (i > 0) all.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    std::sort(all.begin(), all.end());
    return all[all.size() / 4];
  }

  void meet() {
    if (group_) group_->all_reduce(at::ones({1}, on_))->wait();
    if (device_ != nullptr) device_->synchronize();
  }

  void moving(MachineFile& out) {
    const int64_t count = device_ == nullptr ? 8 << 20 : 64 << 20;
    const at::Tensor a = at::ones({count}, on_), b = at::ones({count}, on_), c = at::empty({count}, on_);
    at::Tensor into = c;
    out.memory_bandwidth = 12.0 * static_cast<double>(count) / seconds_of([&] { at::add_out(into, a, b); });
    out.memory_efficiency = 1;
  }

  double seconds_of_product(int64_t size, int64_t inner, at::ScalarType dtype) {
    const at::Tensor a = at::randn({size, inner}, on_).to(dtype), b = at::randn({inner, size}, on_).to(dtype);
    return seconds_of([&] { model::matrix_product(a, b); });
  }

  // Takes the rate of a large product as the peak, so efficiencies are 1. The overhead of a tile follows from
  // two inner dims: seconds(k) = c * (k + overhead).
  void products(MachineFile& out) {
    const int64_t size = device_ == nullptr ? 1024 : 8192, inner = size, less = size / 8;
    const auto rate = [&](at::ScalarType dtype) {
      const auto n = static_cast<double>(size);
      return 2 * n * n * n / seconds_of_product(size, size, dtype);
    };
    out.peak_32 = rate(at::kFloat);
    out.peak_16 = rate(at::kBFloat16);
    out.efficiency_16 = out.efficiency_32 = 1;
    const at::ScalarType dtype = device_ == nullptr ? at::kFloat : at::kBFloat16;
    const double whole = seconds_of_product(size, inner, dtype), part = seconds_of_product(size, less, dtype);
    const double overhead = (part * static_cast<double>(inner) - whole * static_cast<double>(less)) /
                            std::max(whole - part, 1e-12);
    out.product_overhead = std::clamp(overhead, 0.0, 1000.0);
  }

  void attention(MachineFile& out) {
    const at::ScalarType dtype = device_ == nullptr ? at::kFloat : at::kBFloat16;
    const int64_t length = device_ == nullptr ? 512 : 4096, heads = device_ == nullptr ? 8 : 32, size = 128;
    const auto make = [&] {
      return at::randn({length, heads * size}, on_).to(dtype).set_requires_grad(true);
    };
    const at::Tensor q = make(), k = make(), v = make();
    const model::Heads shape{1, length, size};
    const double forward = seconds_of([&] { model::attend(q, k, v, shape); });
    const at::Tensor ones = at::ones_like(q);
    const double both = seconds_of([&] { model::attend(q, k, v, shape).backward(ones); });
    const auto n = static_cast<double>(length);
    const double operations = 2.0 * n * n * static_cast<double>(heads * size);  // two causal products
    const double peak = dtype == at::kFloat ? out.peak_32 : out.peak_16;
    out.attention_forward = std::clamp(operations / forward / peak, 0.001, 1.0);
    out.attention_backward = std::clamp(2.5 * operations / std::max(both - forward, 1e-9) / peak, 0.001, 1.0);
  }

  // Measures the host time of an operator with almost no work: half of a multiplication and its gradient. On
  // the CPU it precedes the work of each kernel.
  void launches(MachineFile& out) {
    constexpr int kCalls = 100;
    const at::Tensor a = at::ones({16}, on_).set_requires_grad(true), b = at::ones({16}, on_);
    const double seconds = seconds_of([&] {
      at::Tensor product = a;
      for (int i = 0; i < kCalls; ++i) product = at::mul(product, b);
      product.backward(b);
    });
    out.launch_seconds = seconds / (2 * kCalls);
    if (device_ == nullptr) out.kernel_seconds = std::exchange(out.launch_seconds, 0);
  }

  void collectives(MachineFile& out) {
    if (!group_) return;
    constexpr int kRepetitions = 20;
    const int64_t each = (device_ == nullptr ? 4 << 20 : 64 << 20) / ranks();
    const at::Tensor one = at::ones({16}, on_);
    const double small = seconds_of_collective([&] { return group_->all_reduce(one); }, 5 * kRepetitions);
    out.collective_seconds = small;
    out.node_latency = 0;
    const at::Tensor part = at::ones({each}, on_), whole = at::empty({each * ranks()}, on_);
    const double large = seconds_of_collective([&] { return group_->all_gather(whole, part); }, kRepetitions);
    out.node_bandwidth =
        4.0 * static_cast<double>(each) * (ranks() - 1) / std::max(large - small, large / 10);
    out.network_bandwidth = out.node_bandwidth;
  }

  IDevice* const device_;
  const at::TensorOptions on_;
  std::unique_ptr<Communicator> group_;
};

std::string line_of(const char* key, double value) {
  char text[96];
  std::snprintf(text, sizeof(text), "%s: %.4g\n", key, value);
  return text;
}

}  // namespace

MachineFile measure_machine(Rendezvous& rendezvous, IDevice* device) {
  return Measurement(rendezvous, device).run();
}

std::string to_yaml(const MachineFile& machine, const std::string& comment) {
  const std::array<std::pair<const char*, double>, 18> figures = {{
      {"memory", machine.memory},
      {"memory_bandwidth", machine.memory_bandwidth},
      {"memory_efficiency", machine.memory_efficiency},
      {"peak_16", machine.peak_16},
      {"peak_32", machine.peak_32},
      {"efficiency_16", machine.efficiency_16},
      {"efficiency_32", machine.efficiency_32},
      {"product_overhead", machine.product_overhead},
      {"attention_forward", machine.attention_forward},
      {"attention_backward", machine.attention_backward},
      {"kernel_seconds", machine.kernel_seconds},
      {"launch_seconds", machine.launch_seconds},
      {"collective_interference", machine.collective_interference},
      {"node_bandwidth", machine.node_bandwidth},
      {"node_latency", machine.node_latency},
      {"network_bandwidth", machine.network_bandwidth},
      {"network_latency", machine.network_latency},
      {"collective_seconds", machine.collective_seconds},
  }};
  std::string out = "# " + comment + "\ndevice: \"" + machine.device + "\"\n";
  for (const auto& [key, value] : figures) out += line_of(key, value);
  return out + "multiprocessors: " + std::to_string(machine.multiprocessors) +
         "\nnode_devices: " + std::to_string(machine.node_devices) + "\n";
}

}  // namespace heddle
