// What a rank writes when it crashes.
#pragma once

namespace heddle::launch {

// From now on a crash of this process (SIGSEGV, SIGBUS, SIGFPE, SIGILL) writes the rank, and the file of the
// first plugin among the frames, else that of the faulting instruction, with the place in it. The signal then
// acts as by default: status and core dump are those of the crash. Handlers that are there stay.
void name_crashes(int rank);

}  // namespace heddle::launch
