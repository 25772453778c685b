// What a kind of device can do, and how devices are joined: files share/heddle/machines/NAME.yaml.
#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <string>
#include <vector>

namespace heddle {

// Seconds, bytes, operations. Bandwidths are of one device in one direction. Efficiencies are shares of the
// peak that large operators reach.
struct MachineFile {
  std::string name;    // of the file without ".yaml", as `check --cost` and `plan --device` take it
  std::string device;  // a part of the product's name: "H100" of "NVIDIA H100 80GB HBM3"
  double memory = 0;   // 0: not known
  double memory_bandwidth = 0, memory_efficiency = 0.85;
  double peak_16 = 0, peak_32 = 0, peak_8 = 0;  // dense products of 16-bit, 32-bit and 8-bit floats
  double efficiency_16 = 0.7, efficiency_32 = 0.8, efficiency_8 = 0.6;
  int64_t multiprocessors = 100;
  // Steps along the inner dim that a tile of a product takes to begin and to end.
  double product_overhead = 150;
  double attention_forward = 0.5, attention_backward = 0.4;  // shares of peak_16, causal, by heddle's kernel
  double kernel_seconds = 1.5e-6;                            // between two kernels of a stream
  double launch_seconds = 6e-6;                              // of the host for each kernel
  // Share of its speed that computation loses while a collective runs beside it.
  double collective_interference = 0.1;
  int64_t node_devices = 8;            // that one domain of fast links joins
  double node_bandwidth = 0;           // in collectives of all devices of a node ("bus bandwidth")
  double node_latency = 3.4e-6;        // of a step of a ring between two devices of a node
  double network_bandwidth = 0;        // of a device's share of its node's network
  double network_latency = 14e-6;      // of a step of a ring between two nodes
  double collective_seconds = 8.4e-6;  // of any collective

  double peak(c10::ScalarType dtype) const;  // 0: not known
  double efficiency(c10::ScalarType dtype) const;
};

// So many ranks of one kind, in the order of the ranks.
struct MachinePart {
  MachineFile machine;
  int64_t ranks = 0;
};
using Machines = std::vector<MachinePart>;

// Reads a file of a machine. Throws Error{config} for a wrong key or value, Error{input} for a missing file.
MachineFile read_machine(const std::filesystem::path& file);

// The machine of this name or device, in any case of letters, with or without spaces and hyphens. Throws
// Error{usage} at `option` with the names.
MachineFile machine_named(const std::string& name, const std::string& option);

// The machine whose device is named in a device's own name: "NVIDIA A40" is an A40, "NVIDIA RTX A4000" is
// not. Null: no file has it. The longest name counts.
const MachineFile* machine_of(const std::string& device);

// The same machine where nodes hold equal numbers of `ranks` ranks: the most that divide them.
MachineFile with_even_nodes(MachineFile machine, int64_t ranks);

// The names of all files, sorted.
std::vector<std::string> machine_names();

}  // namespace heddle
