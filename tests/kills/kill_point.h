// The death of a process in the middle of what it does to files, or a disk that fails it from then on.
#pragma once

#include <cstdint>

namespace kills {

// SIGKILL at the operation with this number, counted from kill_at_operation() on: a file or directory made,
// written, synced, renamed or removed.
struct KillPoint {
  // halfway: half of a write is made. fails: nobody dies, but from this operation on the disk answers
  // `error`: ENOSPC where something would grow, EACCES where a directory would change, EIO where something is
  // written.
  enum class When { before, halfway, after, later, fails } when = When::before;
  enum class Whom { process, group } whom = Whom::process;
  int64_t operation = 0;     // 0: never; it only counts
  int64_t microseconds = 0;  // later: so long after the operation, whatever is done then
  int error = 0;             // fails: ENOSPC, EACCES or EIO
};

// To be called once in a process.
void kill_at_operation(const KillPoint& point);

// How many operations there were; of the last process of this program that was to be killed, across forks.
int64_t operations();

// Before the first fork: lays the count into memory that all processes share.
void share_the_count();

}  // namespace kills
