// Speeds of a device type and of the links between devices: files share/heddle/machines/NAME.yaml.
#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <string>
#include <vector>

namespace heddle {

// Units are seconds, bytes and operations. Bandwidths are per device and direction. Efficiencies are the
// shares of the peak that large operators reach.
struct MachineFile {
  std::string name;    // file name without ".yaml", as `check --cost` and `plan --device` take it
  std::string device;  // part of the product name: "H100" of "NVIDIA H100 80GB HBM3"
  double memory = 0;   // 0: unknown
  double memory_bandwidth = 0, memory_efficiency = 0.85;
  double peak_16 = 0, peak_32 = 0, peak_8 = 0;  // dense matrix products of 16-bit, 32-bit and 8-bit floats
  double efficiency_16 = 0.7, efficiency_32 = 0.8, efficiency_8 = 0.6;
  int64_t multiprocessors = 100;
  // Overhead of a product's tile, in steps along the inner dim.
  double product_overhead = 150;
  // shares of the peak that causal attention reaches with heddle's kernel
  double attention_forward = 0.5, attention_backward = 0.4;
  double kernel_seconds = 1.5e-6;  // between two kernels of a stream
  double launch_seconds = 6e-6;    // host time per kernel
  // Share of its speed that computation loses while a collective runs.
  double collective_interference = 0.1;
  int64_t node_devices = 8;            // devices in one domain of fast links
  double node_bandwidth = 0;           // bus bandwidth of collectives over all devices of a node
  double node_latency = 3.4e-6;        // step of a ring between two devices of a node
  double network_bandwidth = 0;        // a device's share of its node's network
  double network_latency = 14e-6;      // step of a ring between two nodes
  double collective_seconds = 8.4e-6;  // fixed time of a collective

  double peak(c10::ScalarType dtype) const;  // 0: unknown
  double efficiency(c10::ScalarType dtype) const;
};

// Ranks on machines of one kind. Parts are in the order of the ranks.
struct MachinePart {
  MachineFile machine;
  int64_t ranks = 0;
};
using Machines = std::vector<MachinePart>;

// Reads a machine file. Throws Error{config} for an invalid key or value, Error{input} for a missing file.
MachineFile read_machine(const std::filesystem::path& file);

// Returns the machine with this name or device, ignoring case, spaces and hyphens. Throws Error{usage} at
// `option` with the available names.
MachineFile machine_named(const std::string& name, const std::string& option);

// Returns the machine whose device name occurs in a device's full name: "NVIDIA A40" is an A40, "NVIDIA RTX
// A4000" is not. The longest match wins. Null: none.
const MachineFile* machine_of(const std::string& device);

// Returns the machine with the largest node size that divides `ranks`.
MachineFile with_even_nodes(MachineFile machine, int64_t ranks);

// Returns the names of all machine files, sorted.
std::vector<std::string> machine_names();

}  // namespace heddle
