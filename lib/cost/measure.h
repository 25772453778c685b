// Measures a machine: its devices and the links between them.
#pragma once

#include <string>

#include "heddle/mesh/device.h"
#include "heddle/mesh/rendezvous.h"
#include "lib/cost/machine.h"

namespace heddle {

// Measures matrix products, attention, elementwise operators, launches and collectives while all ranks work
// at the same time. Called on every rank; `device` is null on the CPU. Does not measure the network between
// nodes. Takes seconds.
MachineFile measure_machine(Rendezvous& rendezvous, IDevice* device);

// Returns the text of a machine file, with `comment` as its first line.
std::string to_yaml(const MachineFile& machine, const std::string& comment);

}  // namespace heddle
