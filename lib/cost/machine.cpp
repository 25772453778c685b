// Reads machine files and finds the directory in which they are installed.
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

ConfigSchema<MachineFile> schema() {
  const auto share = Range<double>{0.001, 1};
  const auto amount = at_least(0.0);
  return ConfigSchema<MachineFile>()
      .field("device", &MachineFile::device, "Part of the device's product name.")
      .field("memory", &MachineFile::memory, "Bytes of a device's memory. 0: not known.", amount)
      .field("memory_bandwidth", &MachineFile::memory_bandwidth, "Bytes a second of its memory.", amount)
      .field("memory_efficiency", &MachineFile::memory_efficiency,
             "Share of memory_bandwidth that large element-wise operators reach.", share)
      .field("peak_16", &MachineFile::peak_16, "Dense products of 16-bit floats, operations a second.",
             amount)
      .field("peak_32", &MachineFile::peak_32, "Products of 32-bit floats, operations a second.", amount)
      .field("peak_8", &MachineFile::peak_8, "Dense products of 8-bit floats, operations a second.", amount)
      .field("efficiency_16", &MachineFile::efficiency_16, "Share of peak_16 that large products reach.",
             share)
      .field("efficiency_32", &MachineFile::efficiency_32, "Share of peak_32 that large products reach.",
             share)
      .field("efficiency_8", &MachineFile::efficiency_8, "Share of peak_8 that large products reach.", share)
      .field("multiprocessors", &MachineFile::multiprocessors,
             "Parts of a device that compute tiles at once.", at_least(int64_t{1}))
      .field("product_overhead", &MachineFile::product_overhead,
             "Steps along the inner dim that a tile takes to begin and to end.", amount)
      .field("attention_forward", &MachineFile::attention_forward,
             "Share of the peak that causal attention reaches in the forward pass.", share)
      .field("attention_backward", &MachineFile::attention_backward,
             "Share of the peak that causal attention reaches in the backward pass.", share)
      .field("kernel_seconds", &MachineFile::kernel_seconds, "Seconds between two kernels of a stream.",
             amount)
      .field("launch_seconds", &MachineFile::launch_seconds, "Seconds of the host for each kernel.", amount)
      .field("collective_interference", &MachineFile::collective_interference,
             "Share of speed that computation loses while a collective runs.", Range<double>{0, 0.9})
      .field("node_devices", &MachineFile::node_devices, "Devices joined by one domain of fast links.",
             at_least(int64_t{1}))
      .field("node_bandwidth", &MachineFile::node_bandwidth,
             "Bytes a second of a device in collectives within a node.", amount)
      .field("node_latency", &MachineFile::node_latency, "Seconds of a step of a ring within a node.", amount)
      .field("network_bandwidth", &MachineFile::network_bandwidth,
             "Bytes a second of a device's share of the network between nodes.", amount)
      .field("network_latency", &MachineFile::network_latency, "Seconds of a step of a ring between nodes.",
             amount)
      .field("collective_seconds", &MachineFile::collective_seconds, "Seconds that any collective takes.",
             amount);
}

// Returns the directory: next to the library in a build, in ../share after an installation.
fs::path directory() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&machine_names), &info);
  std::error_code ignored;
  const fs::path library = fs::canonical(info.dli_fname == nullptr ? "" : info.dli_fname, ignored);
  const fs::path here = library.parent_path() / "share/heddle/machines";
  return fs::is_directory(here, ignored) ? here
                                         : library.parent_path().parent_path() / "share/heddle/machines";
}

std::map<std::string, MachineFile> read_all() {
  std::map<std::string, MachineFile> machines;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory(), ignored))
    if (entry.path().extension() == ".yaml")
      machines.emplace(entry.path().stem().string(), read_machine(entry.path()));
  return machines;
}

const std::map<std::string, MachineFile>& machines() {
  static const std::map<std::string, MachineFile> all = read_all();
  return all;
}

// Normalizes a name to lowercase without spaces and hyphens, so that "RTX A6000" equals "rtx-a6000".
std::string plain(const std::string& name) {
  std::string out;
  for (const char letter : text::lower(name))
    if (letter != ' ' && letter != '-') out += letter;
  return out;
}

bool is_named(const std::string& product, const std::string& device) {
  const size_t place = product.find(device);
  if (device.empty() || place == product.npos) return false;
  const size_t end = place + device.size();
  return end == product.size() || std::isdigit(static_cast<unsigned char>(product[end])) == 0;
}

}  // namespace

double MachineFile::peak(c10::ScalarType dtype) const {
  switch (c10::elementSize(dtype)) {
    case 1:
      return peak_8 > 0 ? peak_8 : peak_16;
    case 2:
      return peak_16;
    default:
      return peak_32;
  }
}

double MachineFile::efficiency(c10::ScalarType dtype) const {
  switch (c10::elementSize(dtype)) {
    case 1:
      return peak_8 > 0 ? efficiency_8 : efficiency_16;
    case 2:
      return efficiency_16;
    default:
      return efficiency_32;
  }
}

MachineFile read_machine(const fs::path& file) {
  MachineFile machine = schema().read(config::read(file.string()));
  machine.name = file.stem().string();
  return machine;
}

MachineFile machine_named(const std::string& name, const std::string& option) {
  for (const auto& [key, machine] : machines())
    if (plain(key) == plain(name) || plain(machine.device) == plain(name)) return machine;
  const std::vector<std::string> names = machine_names();
  const std::string near = text::nearest(name, names);
  throw Error(
      ErrorCode::usage, option, "unknown device '" + name + "'",
      (near.empty() ? "" : "did you mean '" + near + "'? Else ") + "use one of " + text::join(names, ", "));
}

const MachineFile* machine_of(const std::string& device) {
  const MachineFile* longest = nullptr;
  for (const auto& [key, machine] : machines())
    if (is_named(device, machine.device) &&
        (longest == nullptr || machine.device.size() > longest->device.size()))
      longest = &machine;
  return longest;
}

MachineFile with_even_nodes(MachineFile machine, int64_t ranks) {
  machine.node_devices = std::min(machine.node_devices, ranks);
  while (ranks % machine.node_devices != 0) --machine.node_devices;
  return machine;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto& [key, machine] : machines()) names.push_back(key);
  return names;
}

}  // namespace heddle
