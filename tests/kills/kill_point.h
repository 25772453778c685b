// Kills a process at a chosen file operation, or makes the disk fail from that operation on.
#pragma once

#include <cstdint>

namespace kills {

// SIGKILL at the Nth file operation after kill_at_operation(). An operation creates, writes, syncs, renames
// or removes a file or directory.
struct KillPoint {
  // halfway: performs half of a write first. fails: does not kill, but fails this and later operations with
  // `error`: ENOSPC for operations that need space, EACCES for changes of a directory, EIO for writes and
  // syncs.
  enum class When { before, halfway, after, later, fails } when = When::before;
  enum class Whom { process, group } whom = Whom::process;
  int64_t operation = 0;     // 0: only counts operations
  int64_t microseconds = 0;  // later: delay after the operation
  int error = 0;             // fails: ENOSPC, EACCES or EIO
};

// Call once per process.
void kill_at_operation(const KillPoint& point);

// Returns the number of operations of the last process that called kill_at_operation(), across forks.
int64_t operations();

// Moves the counter to memory shared by all processes. Call before the first fork.
void share_the_count();

}  // namespace kills
