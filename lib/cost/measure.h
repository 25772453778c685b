// Measures a machine: its devices, and the links between them.
#pragma once

#include <string>

#include "heddle/mesh/device.h"
#include "heddle/mesh/rendezvous.h"
#include "lib/cost/machine.h"

namespace heddle {

// What the ranks of `rendezvous` reach while all of them work at once: products, attention, element-wise
// operators, launches, and collectives of all ranks. Called on every rank; `device` is null on the CPU. The
// network between nodes is not measured. Takes seconds.
MachineFile measure_machine(Rendezvous& rendezvous, IDevice* device);

// The text of a machine file, with `comment` as its first line.
std::string to_yaml(const MachineFile& machine, const std::string& comment);

}  // namespace heddle
