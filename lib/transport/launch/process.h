// Which process a rank is, and what another process of this machine does.
#pragma once

#include <cstdint>
#include <string>

#include "heddle/base/export.h"

namespace heddle::mesh {

// The table is that of the processes that can be seen: the machine's start (boot id) and the process
// namespace. Ids of one table mean nothing in another one.
struct Process {
  int id = 0;
  uint64_t started = 0;  // clock ticks after the machine's start: tells it from a later one with the same id
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
