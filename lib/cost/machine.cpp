// Files of machines: keys, ranges, and the directory where they are installed.
#include "lib/cost/machine.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/config/schema.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

ConfigSchema<Machine> schema() {
  const auto share = Range<double>{0.001, 1};
  const auto amount = at_least(0.0);
  return ConfigSchema<Machine>()
      .field("device", &Machine::device, "Part of the device's product name.")
      .field("memory", &Machine::memory, "Bytes of a device's memory. 0: not known.", amount)
      .field("memory_bandwidth", &Machine::memory_bandwidth, "Bytes a second of its memory.", amount)
      .field("memory_efficiency", &Machine::memory_efficiency,
             "Share of memory_bandwidth that large element-wise operators reach.", share)
      .field("peak_16", &Machine::peak_16, "Dense products of 16-bit floats, operations a second.", amount)
      .field("peak_32", &Machine::peak_32, "Products of 32-bit floats, operations a second.", amount)
      .field("peak_8", &Machine::peak_8, "Dense products of 8-bit floats, operations a second.", amount)
      .field("efficiency_16", &Machine::efficiency_16, "Share of peak_16 that large products reach.", share)
      .field("efficiency_32", &Machine::efficiency_32, "Share of peak_32 that large products reach.", share)
      .field("efficiency_8", &Machine::efficiency_8, "Share of peak_8 that large products reach.", share)
      .field("multiprocessors", &Machine::multiprocessors, "Parts of a device that compute tiles at once.",
             at_least(int64_t{1}))
      .field("product_overhead", &Machine::product_overhead,
             "Steps along the inner dim that a tile takes to begin and to end.", amount)
      .field("attention_forward", &Machine::attention_forward,
             "Share of peak_16 that causal attention reaches in the forward pass.", share)
      .field("attention_backward", &Machine::attention_backward,
             "Share of peak_16 that causal attention reaches in the backward pass.", share)
      .field("kernel_seconds", &Machine::kernel_seconds, "Seconds between two kernels of a stream.", amount)
      .field("launch_seconds", &Machine::launch_seconds, "Seconds of the host for each kernel.", amount)
      .field("collective_interference", &Machine::collective_interference,
             "Share of speed that computation loses while a collective runs.", Range<double>{0, 0.9})
      .field("node_devices", &Machine::node_devices, "Devices joined by one domain of fast links.",
             at_least(int64_t{1}))
      .field("node_bandwidth", &Machine::node_bandwidth,
             "Bytes a second of a device in collectives within a node.", amount)
      .field("node_latency", &Machine::node_latency, "Seconds of a step of a ring within a node.", amount)
      .field("network_bandwidth", &Machine::network_bandwidth,
             "Bytes a second of a device's share of the network between nodes.", amount)
      .field("network_latency", &Machine::network_latency, "Seconds of a step of a ring between nodes.",
             amount)
      .field("collective_seconds", &Machine::collective_seconds, "Seconds that any collective takes.",
             amount);
}

// Beside the library in a build, and in ../share once it is installed.
fs::path directory() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&machine_names), &info);
  std::error_code ignored;
  const fs::path library = fs::canonical(info.dli_fname == nullptr ? "" : info.dli_fname, ignored);
  const fs::path here = library.parent_path() / "share/heddle/machines";
  return fs::is_directory(here, ignored) ? here
                                         : library.parent_path().parent_path() / "share/heddle/machines";
}

std::map<std::string, Machine> read_all() {
  std::map<std::string, Machine> machines;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory(), ignored))
    if (entry.path().extension() == ".yaml")
      machines.emplace(entry.path().stem().string(), read_machine(entry.path()));
  return machines;
}

const std::map<std::string, Machine>& machines() {
  static const std::map<std::string, Machine> all = read_all();
  return all;
}

bool is_named(const std::string& product, const std::string& device) {
  const size_t place = product.find(device);
  if (device.empty() || place == product.npos) return false;
  const size_t end = place + device.size();
  return end == product.size() || std::isdigit(static_cast<unsigned char>(product[end])) == 0;
}

}  // namespace

double Machine::peak(c10::ScalarType dtype) const {
  switch (c10::elementSize(dtype)) {
    case 1:
      return peak_8 > 0 ? peak_8 : peak_16;
    case 2:
      return peak_16;
    default:
      return peak_32;
  }
}

double Machine::efficiency(c10::ScalarType dtype) const {
  switch (c10::elementSize(dtype)) {
    case 1:
      return peak_8 > 0 ? efficiency_8 : efficiency_16;
    case 2:
      return efficiency_16;
    default:
      return efficiency_32;
  }
}

Machine read_machine(const fs::path& file) {
  Machine machine = schema().read(config::read(file.string()));
  machine.name = file.stem().string();
  return machine;
}

Machine machine_named(const std::string& name, const std::string& option) {
  for (const auto& [key, machine] : machines())
    if (text::lower(key) == text::lower(name)) return machine;
  throw Error(ErrorCode::usage, option, "'" + name + "' is not a device that heddle has figures of",
              "give one of " + text::join(machine_names(), ", "));
}

const Machine* machine_of(const std::string& device) {
  const Machine* longest = nullptr;
  for (const auto& [key, machine] : machines())
    if (is_named(device, machine.device) &&
        (longest == nullptr || machine.device.size() > longest->device.size()))
      longest = &machine;
  return longest;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto& [key, machine] : machines()) names.push_back(key);
  return names;
}

}  // namespace heddle
