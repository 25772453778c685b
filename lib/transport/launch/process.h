// The identity of a rank's process, and the state of other processes of this machine.
#pragma once

#include <cstdint>
#include <string>

#include "heddle/base/export.h"

namespace heddle::mesh {

// The table identifies the visible processes: the machine's start (boot id) and the process
// namespace. Ids of one table mean nothing in another one.
struct Process {
  int id = 0;
  uint64_t started =
      0;  // clock ticks after the machine's start: distinguishes it from a later process with the same id
  std::string table = {};  // empty: not known
};

// This process. Without a table where /proc is missing or shows another namespace than that of getpid().
HEDDLE_API Process this_process();

enum class ProcessState {
  alive,
  stopped,  // by a signal (state T)
  traced,   // by a debugger (state t)
  ended,    // gone, or a zombie
  unseen,   // in another table
};

HEDDLE_API ProcessState state_of(const Process& process, const std::string& own_table);

}  // namespace heddle::mesh
